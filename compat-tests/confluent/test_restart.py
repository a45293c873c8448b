"""confluent-kafka: the broker goes away and comes back under a running client."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import Delivered, consumer, create_topic, producer, read, read_everything, send_patiently

RECORDS = 20_000
QUICK = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 50}


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_nothing_is_lost_or_doubled_over_restarts(
    new_broker: Callable[..., BrokerProcess], topic: str, clean: bool
) -> None:
    """An idempotent producer and a consumer run on while the broker is restarted twice under them."""
    broker = new_broker()
    create_topic(broker.bootstrap, topic)
    delivered = Delivered()
    started, midway = threading.Event(), threading.Event()

    def send() -> None:
        sender = producer(broker.bootstrap, enable_idempotence=True, linger_ms=1, **QUICK)
        for number in range(RECORDS):
            send_patiently(sender, topic, b"%d" % number, partition=0, on_delivery=delivered)
            if number % 200 == 0:
                # Paced by acknowledgements, so that the restarts fall into the middle of the work.
                sender.flush(60)
            if number == RECORDS // 10:
                started.set()
            if number == RECORDS // 2:
                midway.set()
        assert sender.flush(60) == 0

    sending = threading.Thread(target=send)
    with consumer(broker.bootstrap, **QUICK) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        sending.start()
        for moment in (started, midway):
            assert moment.wait(60)
            broker.restart(clean=clean)
        seen = [message.value() for message in read(reader, RECORDS, seconds_max=120)]
    sending.join(120)
    expected = [b"%d" % number for number in range(RECORDS)]
    assert (len(delivered.acknowledged), delivered.errors) == (RECORDS, [])
    assert [message.value() for message in read_everything(broker.bootstrap, topic)] == expected
    assert seen == expected
