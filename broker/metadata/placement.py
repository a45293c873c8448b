"""Where the replicas of new partitions go: over racks first, then over brokers; to fenced ones only if need be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import BrokerImage, Image
from tidemark.protocol.errors import ErrorCode


def spread(
    image: Image, *, partitions: int, replication_factor: int, first: int, topics: int | None = None
) -> list[Sequence[int]]:
    """Replicas in a ring over the brokers, in which neighbours are in different racks; each partition starts further.

    `first` is the index of the first partition: a topic that grows goes on where it stopped. `topics`: how many there
    are, if more than in the image are about to be.
    """
    known = len(image.brokers)
    if not 0 < replication_factor <= known:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} is not possible: {known} broker(s) are registered.",
        )
    active = [broker for broker in image.brokers.values() if broker.is_active]
    if not active:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are fenced at the moment.")
    ring = _ring(active)
    spare = _ring([broker for broker in image.brokers.values() if not broker.is_active])
    # Topics with one partition each must not all begin at the same broker.
    start = (len(image.topics) if topics is None else topics) % len(ring)
    racks = {broker.broker_id: broker.rack for broker in image.brokers.values()}
    return [
        _replicas(ring, spare, racks, position=start + index, count=replication_factor)
        for index in range(first, first + partitions)
    ]


def _ring(brokers: Sequence[BrokerImage]) -> list[int]:
    """One of each rack in turn. A broker without a rack is a rack of its own, as Kafka has it only for all or none."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda each: each.broker_id):
        racks.setdefault(broker.rack if broker.rack is not None else "", []).append(broker.broker_id)
    turns = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker_id for turn in turns for broker_id in turn if broker_id is not None]


def _replicas(
    ring: Sequence[int], spare: Sequence[int], racks: dict[int, str | None], *, position: int, count: int
) -> list[int]:
    size = len(ring)
    # Followers start at another place every time around, so that a dead leader's load does not fall on one neighbour.
    shift = (position // size) % max(size - 1, 1)
    leader = ring[position % size]
    others = [ring[(position + 1 + (step + shift) % (size - 1)) % size] for step in range(size - 1)]
    chosen, used = [leader], {racks[leader]}
    for candidates in (others, list(spare)):
        while len(chosen) < count and candidates:
            pick = next((each for each in candidates if racks[each] not in used), candidates[0])
            candidates.remove(pick)
            chosen.append(pick)
            used.add(racks[pick])
            if len(used) == len(set(racks.values())):
                used = set()
    return chosen
