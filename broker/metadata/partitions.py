"""What becomes of one partition when brokers come and go: its leader, its in-sync replicas, its eligible leaders.

The rules are Kafka's (KIP-966 for the eligible leaders): a leader is elected out of the in-sync replicas, else out of
the eligible ones, which hold everything that is committed because nothing is committed while fewer than
`min.insync.replicas` are in sync; only where unclean elections are allowed may any other replica lead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from tidemark.broker.metadata.image import NO_LEADER, RECOVERED, RECOVERING, PartitionImage


class Election(Enum):
    ONLINE = auto()  # only if there is no leader, or it cannot go on
    PREFERRED = auto()  # the first replica, if it can
    UNCLEAN = auto()  # any live replica, if none is in sync or eligible


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the outcome depends on beside the partition itself."""

    is_active: Callable[[int], bool]  # may this broker lead and be in sync?
    min_isr: int
    election: Election = Election.ONLINE
    unclean_allowed: bool = False
    # Does the directory work in which this broker has its replica? None: nothing is known of directories.
    is_online: Callable[[int, PartitionImage], bool] | None = None
    lost_data: Collection[int] = ()  # brokers that came back from an unclean stop: they may lack what they had


def revise(
    before: PartitionImage,
    circumstances: Circumstances,
    *,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    leader_recovery_state: int | None = None,
) -> PartitionImage:
    """The partition after a change; the very same object if nothing changes."""
    changes = {
        "replicas": None if replicas is None else tuple(replicas),
        "isr": None if isr is None else tuple(isr),
        "adding": None if adding is None else tuple(adding),
        "removing": None if removing is None else tuple(removing),
        "leader_recovery_state": leader_recovery_state,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    after = before._replace(**given) if given else before  # type: ignore[arg-type]
    after = _finish_reassignment(after)
    after = _keep_to_replicas(after)
    if before.directories and after.replicas != before.replicas:
        after = after._replace(directories=tuple(map(before.directory_of, after.replicas)))
    if circumstances.is_online is not None and after.directories:
        circumstances = replace(circumstances, is_active=partial(_is_active, circumstances, after), is_online=None)
    after = _note_eligible(before, after, circumstances)
    after = _elect(after, circumstances)
    after = _note_eligible(before, after, circumstances)
    if after.leader != NO_LEADER and after.last_known_elr:
        # As Kafka: it is a guess for when nobody leads. A replica that is named there keeps its log, however damaged.
        after = after._replace(last_known_elr=())
    if after == before:
        return before
    has_lost_a_replica = not set(before.replicas) <= set(after.replicas)
    has_new_leader = after.leader != before.leader or (has_lost_a_replica and after.leader != NO_LEADER)
    return after._replace(
        leader_epoch=before.leader_epoch + has_new_leader,
        partition_epoch=before.partition_epoch + 1,
    )


def _is_active(circumstances: Circumstances, partition: PartitionImage, broker_id: int) -> bool:
    assert circumstances.is_online is not None
    return circumstances.is_active(broker_id) and circumstances.is_online(broker_id, partition)


def _finish_reassignment(partition: PartitionImage) -> PartitionImage:
    """KIP-455: when all that are added are in sync, those that are removed go."""
    if not partition.adding and not partition.removing:
        return partition
    remaining = tuple(each for each in partition.isr if each not in partition.removing)
    if not remaining or not set(partition.adding) <= set(partition.isr):
        return partition
    replicas = tuple(each for each in partition.replicas if each not in partition.removing)
    return partition._replace(replicas=replicas, isr=remaining, adding=(), removing=())


def _keep_to_replicas(partition: PartitionImage) -> PartitionImage:
    replicas = set(partition.replicas)
    if replicas.issuperset(partition.isr) and replicas.issuperset((*partition.elr, *partition.last_known_elr)):
        return partition
    return partition._replace(
        isr=tuple(each for each in partition.isr if each in replicas),
        elr=tuple(each for each in partition.elr if each in replicas),
        last_known_elr=tuple(each for each in partition.last_known_elr if each in replicas),
    )


def _note_eligible(before: PartitionImage, after: PartitionImage, circumstances: Circumstances) -> PartitionImage:
    """While too few are in sync nothing is committed, so replicas that were in sync until then stay eligible."""
    if len(after.isr) >= min(circumstances.min_isr, len(after.replicas)):
        return after._replace(elr=(), last_known_elr=()) if after.elr or after.last_known_elr else after
    eligible = [
        each
        for each in dict.fromkeys((*after.elr, *before.isr))
        if each in after.replicas and each not in after.isr and each not in circumstances.lost_data
    ]
    last_known = after.last_known_elr
    if not after.isr and before.leader != NO_LEADER and before.leader in after.replicas:
        last_known = (before.leader,)  # where no replica is eligible, the last leader is the best guess
    if not after.isr:  # and those that were eligible are the next best, should its disk be lost
        stopped = (each for each in (*before.elr, *before.isr) if each in circumstances.lost_data)
        last_known = tuple(dict.fromkeys((*last_known, *(each for each in stopped if each in after.replicas))))
    return after._replace(elr=tuple(eligible), last_known_elr=last_known)


def _elect(partition: PartitionImage, circumstances: Circumstances) -> PartitionImage:
    is_active, isr = circumstances.is_active, partition.isr
    current = partition.leader
    can_stay = current in isr and current in partition.replicas and is_active(current)
    if circumstances.election is Election.PREFERRED:
        preferred = partition.replicas[0]
        if preferred != current and preferred in isr and is_active(preferred):
            return partition._replace(leader=preferred)
    if can_stay:
        return partition
    for candidate in partition.replicas:
        if candidate in isr and is_active(candidate):
            return partition._replace(leader=candidate)
    for candidate in partition.replicas:
        if candidate in partition.elr and is_active(candidate):
            return partition._replace(leader=candidate, isr=(candidate,))
    return _elect_last_resort(partition, circumstances)


def _elect_last_resort(partition: PartitionImage, circumstances: Circumstances) -> PartitionImage:
    """No in-sync or eligible replica is alive."""
    is_active = circumstances.is_active
    last_known = partition.last_known_elr
    nobody_eligible = not partition.isr and not partition.elr
    if nobody_eligible and last_known and last_known[0] in partition.replicas and is_active(last_known[0]):
        # All stopped uncleanly, and no other replica can hold more than the last leader does (KIP-966).
        return partition._replace(leader=last_known[0], isr=last_known[:1], leader_recovery_state=RECOVERING)
    if circumstances.unclean_allowed or circumstances.election is Election.UNCLEAN:
        for candidate in partition.replicas:
            if is_active(candidate):
                return partition._replace(leader=candidate, isr=(candidate,), leader_recovery_state=RECOVERING)
    if partition.leader == NO_LEADER:
        return partition
    return partition._replace(leader=NO_LEADER)


def fresh(
    replicas: Sequence[int], *, is_active: Callable[[int], bool], directories: Sequence[bytes] = ()
) -> PartitionImage:
    """A new partition: empty, so every replica that is there is in sync. At least one must be."""
    isr = tuple(each for each in replicas if is_active(each))
    return PartitionImage(
        replicas=tuple(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        leader_recovery_state=RECOVERED,
        directories=tuple(directories),
    )
