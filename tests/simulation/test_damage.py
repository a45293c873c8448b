"""What damage on one node's disk may cost: nothing but the time to fetch it anew."""

from __future__ import annotations

import asyncio
from random import Random

from cluster_simulation.administrator import create_topic
from cluster_simulation.clients import Producer
from cluster_simulation.history import History

from tidemark.protocol.records import iter_batches
from tidemark.simulation import Broker, Cluster
from tidemark.simulation.client import KafkaClient
from tidemark.simulation.disk import File

OFFSET_AT = 0  # in a batch's header
EPOCH_AT = 12


async def write(client: KafkaClient, history: History) -> None:
    await create_topic(client, "orders", partitions=1, replicas=3)
    producer = Producer("p", client, history, Random(1), [("orders", 0)])
    await producer.init()
    for _ in range(5):
        await producer.produce(("orders", 0), [b"x"])
    await asyncio.sleep(1)


def log_file(broker: Broker) -> File:
    file = broker.machine.disk.find(f"/{broker.name}/data/orders-0/{0:020}.log")
    assert isinstance(file, File)
    return file


def is_leading(broker: Broker) -> bool:
    return broker.node is not None and bool(broker.node._replicas.table.topics["orders"].partitions)


def is_in_sync(cluster: Cluster) -> bool:
    node = cluster.brokers[1].node
    return node is not None and set(node._store.image.topics["orders"].partitions[0].isr) == {1, 2, 3}


def test_a_flipped_bit_in_the_epoch_of_the_last_batch_does_not_keep_a_replica_out_of_sync() -> None:
    """No checksum covers it, and no leader knows the epoch that it makes: seed 218 of what `make simulate` ran."""
    with Cluster(seed=1) as cluster:
        cluster.start()
        client = KafkaClient(cluster.bootstrap, client_id="test")
        cluster.call(write(client, History()))
        follower = next(each for each in cluster.brokers.values() if not is_leading(each))
        follower.kill()
        data = log_file(follower).data
        last = len(data) - len([*iter_batches(bytes(data))][-1][1])
        data[last + EPOCH_AT + 3] ^= 4
        cluster.run(5)
        assert not is_in_sync(cluster)
        follower.start()
        cluster.run_until(lambda: is_in_sync(cluster), seconds_max=30)
        cluster.run(1)
        first, *others = (bytes(log_file(each).data) for each in cluster.brokers.values())
        assert others == [first, first]


def test_a_flipped_bit_in_the_offset_of_a_batch_is_not_taken_for_a_torn_tail_after_it() -> None:
    """No checksum covers it, either. What followed the batch was cut off; then the replica held other records than its
    leader, or, by seed 5009, its end lay within a batch of the leader, and it never was in sync again."""
    with Cluster(seed=1) as cluster:
        cluster.start()
        client = KafkaClient(cluster.bootstrap, client_id="test")
        cluster.call(write(client, History()))
        follower = next(each for each in cluster.brokers.values() if not is_leading(each))
        follower.kill()
        log_file(follower).data[OFFSET_AT + 7] ^= 4  # the first batch is the last one now, by its offset
        cluster.run(5)
        follower.start()
        cluster.run_until(lambda: is_in_sync(cluster), seconds_max=30)
        cluster.run(1)
        first, *others = (bytes(log_file(each).data) for each in cluster.brokers.values())
        assert others == [first, first]
