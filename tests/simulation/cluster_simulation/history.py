"""What clients did and were told: the ground on which a run is judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, int]  # topic, partition


class Anomaly(Exception):
    """Something that must never happen."""


@dataclass(slots=True)
class Sent:
    """A record that a producer sent. `offset`: where it was acknowledged. `transaction`: of which it is a part."""

    place: Place
    producer: str
    number: int
    offset: int | None = None
    refused: bool = False
    transaction: int | None = None
    source: tuple[Place, int] | None = None  # of a copy: where what it copies was read


@dataclass(slots=True)
class History:
    sent: dict[bytes, Sent] = field(default_factory=dict)
    read: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    decided: dict[int, str] = field(default_factory=dict)  # transaction -> committed, aborted, unknown
    acknowledged: int = 0
    requests: int = 0
    last_ack: dict[str, float] = field(default_factory=dict)
    transactions: int = 0
    ends: dict[Place, int] = field(default_factory=lambda: defaultdict(int))  # after the last acknowledged record
    may_be_deleted: dict[Place, int] = field(default_factory=lambda: defaultdict(int))  # what is before it
    deleted: dict[Place, int] = field(default_factory=lambda: defaultdict(int))  # for certain
    done: Counter[str] = field(default_factory=Counter)  # by administrators
    committed: dict[tuple[str, Place], int] = field(default_factory=dict)  # by group: the highest that was acknowledged
    read_by: dict[tuple[str, Place], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    generations: dict[tuple[str, int], dict[Place, str]] = field(default_factory=dict)
    members: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))  # by group

    def saw(self, place: Place, offset: int, value: bytes, *, committed_only: bool) -> None:
        """A reader was shown this."""
        known = self.read[place].setdefault(offset, value)
        if known != value:
            raise Anomaly(f"{place} offset {offset} was read as {known!r} and as {value!r}")
        sent = self.sent.get(value)
        if sent is None or sent.place != place:
            raise Anomaly(f"{place} offset {offset} holds {value!r}, which nobody sent there")
        if sent.refused:
            raise Anomaly(f"{place} offset {offset} holds {value!r}, which was refused")
        if committed_only and sent.transaction is not None:
            outcome = self.decided.get(sent.transaction)
            if outcome is None or outcome == "aborted":
                state = "aborted" if outcome else "undecided"
                raise Anomaly(f"read_committed was shown {value!r} of the {state} transaction {sent.transaction}")

    def new_transaction(self) -> int:
        self.transactions += 1
        return self.transactions

    # Groups

    def has_committed(self, group: str, place: Place, offset: int, *, known: int) -> None:
        """`known`: what had been acknowledged when this commit was sent."""
        if offset < known:
            raise Anomaly(f"{group}: offset {offset} of {place} was committed after {known}: somebody was not fenced")
        self.committed[group, place] = max(offset, self.committed.get((group, place), -1))

    def processed(self, group: str, place: Place, begin: int, end: int) -> None:
        self.read_by[group, place].append((begin, end))

    def generation(self, group: str, epoch: int, member: str, places: list[Place]) -> None:
        """What a classic generation's members are told must be disjoint."""
        known = self.generations.setdefault((group, epoch), {})
        for place in places:
            if known.setdefault(place, member) != member:
                raise Anomaly(f"{group}: generation {epoch} gives {place} to {known[place]} and to {member}")

    def claim(self, member: Any, places: list[Place]) -> None:
        """`member` counts these as its own from now on; nobody else may."""
        others = self.members[member.group]
        if member not in others:
            others.append(member)
        for other in others:
            if other is not member and other.is_trusted:
                for place in places:
                    if place in other.owned:
                        raise Anomaly(f"{member.name} is given {place}, which {other.name} still owns")
