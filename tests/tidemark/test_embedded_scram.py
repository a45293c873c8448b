from __future__ import annotations

from confluent_kafka import KafkaError, Producer

import tidemark


def test_a_broker_where_clients_log_in_and_strangers_do_not() -> None:
    with tidemark.embedded(security="scram") as broker:
        producer = Producer(broker.client_settings)
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        errors: list[KafkaError] = []
        stranger = Producer({**broker.client_settings, "sasl.password": "guessed", "error_cb": errors.append})
        while not errors:
            stranger.poll(0.1)
        assert errors[0].code() == KafkaError._AUTHENTICATION
