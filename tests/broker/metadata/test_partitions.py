"""What becomes of a partition when its circumstances change."""

from __future__ import annotations

from tidemark.broker.metadata.image import PartitionImage
from tidemark.broker.metadata.partitions import Circumstances, revise


def test_the_last_leader_is_of_no_account_any_more_when_an_eligible_replica_leads() -> None:
    """Its log was damaged, and stayed refused for ever, since it may be relied on: two replicas, and nothing was ever
    acknowledged again."""
    leaderless = PartitionImage(
        replicas=(1, 2), isr=(), leader=-1, leader_epoch=4, partition_epoch=6, elr=(2,), last_known_elr=(1,)
    )
    led = revise(leaderless, Circumstances(is_active=lambda _: True, min_isr=2))
    assert (led.leader, led.isr, led.elr, led.last_known_elr) == (2, (2,), (), ())
