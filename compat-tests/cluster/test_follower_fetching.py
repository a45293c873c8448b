"""Reading from a replica in one's own rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from harness.cluster import Cluster
from harness.requests import fetch, fetched, metadata, partition_to_fetch
from harness.waiting import eventually
from harness.wire import Wire

NewCluster = Callable[..., Cluster]
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_everything_there(new_cluster: NewCluster) -> None:
    cluster = new_cluster({"replica.selector.class": SELECTOR}, racks=True)
    cluster.create_topic("t", min_insync_replicas="2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    for number in range(100):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    leader = cluster.nodes[cluster.leaders("t")[0]]
    follower = next(node for node in cluster if node is not leader)
    with Wire(leader.host, leader.port) as wire:
        topic_id = metadata(wire, "t").topics[0].topic_id

        def is_sent_away() -> bool:
            answer = fetched(fetch(wire, topic_id, partition_to_fetch(), rack_id=f"rack-{follower.node_id}"))[0]
            return bool(answer.preferred_read_replica == follower.node_id and not answer.records)

        eventually(is_sent_away)
        own = fetched(fetch(wire, topic_id, partition_to_fetch(), rack_id=f"rack-{leader.node_id}"))[0]
        assert own.preferred_read_replica == -1
        assert own.records
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "client.rack": f"rack-{follower.node_id}",
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    read: list[bytes | None] = []

    def reads_on() -> bool:
        read.extend(message.value() for message in consumer.consume(100, timeout=1.0) if message.error() is None)
        return len(read) >= 100

    eventually(reads_on, seconds_max=30)
    consumer.close()
    assert read == [b"%d" % number for number in range(100)]
