"""kafka-python: the broker goes away and comes back under a running client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from harness.broker_process import BrokerProcess
from harness.kafka_python_client import consumer, producer, read, read_from
from kafka import KafkaAdminClient, TopicPartition

RECORDS = 5_000
QUICK = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 50}


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_nothing_is_lost_or_doubled_over_restarts(
    new_broker: Callable[..., BrokerProcess], topic: str, clean: bool
) -> None:
    """An idempotent producer and a consumer run on while the broker is restarted under them."""
    broker = new_broker()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    admin.close()
    acknowledged: list[Any] = []
    midway = threading.Event()

    def send() -> None:
        with producer(broker.bootstrap, enable_idempotence=True, **QUICK) as sender:
            for first in range(0, RECORDS, 100):
                futures = [sender.send(topic, b"%d" % (first + index), partition=0) for index in range(100)]
                # Paced by acknowledgements, so that the restart falls into the middle of the work.
                acknowledged.extend(future.get(timeout=60) for future in futures)
                if first >= RECORDS // 4:
                    midway.set()

    sending = threading.Thread(target=send)
    partition = TopicPartition(topic, 0)
    with consumer(broker.bootstrap, **QUICK) as reader:
        reader.assign([partition])
        reader.seek(partition, 0)
        sending.start()
        assert midway.wait(60)
        broker.restart(clean=clean)
        seen = [record.value for record in read(reader, RECORDS, seconds_max=120)]
    sending.join(120)
    expected = [b"%d" % number for number in range(RECORDS)]
    assert [answer.offset for answer in acknowledged] == list(range(RECORDS))
    assert seen == expected
    assert [record.value for record in read_from(broker.bootstrap, topic, RECORDS)] == expected
