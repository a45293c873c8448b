"""A broker whose disk hangs does not hear what is decided: it must not go on as if nothing were."""

from __future__ import annotations

from cluster_simulation.administrator import create_topic

from tidemark.broker.metadata.image import Image
from tidemark.simulation import Broker, Cluster
from tidemark.simulation.client import KafkaClient


def image_of(broker: Broker) -> Image:
    assert broker.node is not None
    return broker.node._store.image


def test_a_broker_whose_metadata_hangs_is_fenced_and_comes_back() -> None:
    """Seed 239 of what `make simulate` ran: it led on by old metadata, and told a reader of the new leader's records
    that there was no such offset."""
    with Cluster(seed=3) as cluster:
        cluster.start()
        client = KafkaClient(cluster.bootstrap, client_id="test")
        cluster.call(create_topic(client, "orders", partitions=3, replicas=3))
        controller = next(each for each in cluster.brokers.values() if each.node._store.is_controller)  # type: ignore[union-attr]
        hung = next(each for each in cluster.brokers.values() if each is not controller)
        cluster.run(1)
        led = [at for at, each in enumerate(image_of(hung).topics["orders"].partitions) if each.leader == hung.node_id]
        assert led
        hung.machine.disk.hangs_until = cluster.world.now + 60
        cluster.call(create_topic(client, "payments", partitions=1, replicas=2))  # something to hear of
        cluster.run(12)
        assert image_of(controller).brokers[hung.node_id].fenced
        assert all(image_of(controller).topics["orders"].partitions[at].leader != hung.node_id for at in led)
        lease_until = hung.node._replicas.table.lease_until  # type: ignore[union-attr]
        assert lease_until is not None
        assert lease_until <= hung.process.boot_clock()  # type: ignore[union-attr]

        hung.machine.disk.hangs_until = 0.0
        cluster.run_until(
            lambda: all(set(each.isr) == {1, 2, 3} for each in image_of(hung).topics["orders"].partitions),
            seconds_max=30,
        )
        assert image_of(hung).is_active(hung.node_id)
