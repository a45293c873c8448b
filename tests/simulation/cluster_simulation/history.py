"""What clients did and were told: the ground on which a run is judged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class History:
    sent: dict[bytes, Sent] = field(default_factory=dict)
    read: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    decided: dict[int, str] = field(default_factory=dict)  # transaction -> committed, aborted, unknown
    copied: dict[bytes, int] = field(default_factory=dict)
    acknowledged: int = 0
    requests: int = 0
    last_ack: dict[str, float] = field(default_factory=dict)
    transactions: int = 0
    failures: list[str] = field(default_factory=list)

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
