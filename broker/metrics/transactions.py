"""Transactions that this node coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark.broker.metrics.exposition import Collected, labels
from tidemark.broker.metrics.metric import Kind, Metric

if TYPE_CHECKING:  # loaded with the first transaction
    from tidemark.broker.transactions.coordinator import TransactionCoordinator

AT_REST: Final = ("Empty", "CompleteCommit", "CompleteAbort")
_PREFIX: Final = "kafka_coordinator_transaction"
STATES: Final = Metric(
    name=f"{_PREFIX}_transactions",
    kind=Kind.GAUGE,
    labels=("state",),
    help="Transactional ids that this node coordinates, by the state of their last transaction.",
)
OPEN: Final = Metric(name=f"{_PREFIX}_open", kind=Kind.GAUGE, help="Transactions that are not ended everywhere.")
OLDEST: Final = Metric(
    name=f"{_PREFIX}_oldest_open_seconds", kind=Kind.GAUGE, help="How long the oldest of them is open."
)
COMMITTED: Final = Metric(name=f"{_PREFIX}_committed", kind=Kind.COUNTER, help="Transactions that were committed.")
ABORTED: Final = Metric(name=f"{_PREFIX}_aborted", kind=Kind.COUNTER, help="Transactions that were aborted.")
STEP: Final = 100  # transactions between two looks at the clock


class TransactionMetrics:
    METRICS: Final = (STATES, OPEN, OLDEST, COMMITTED, ABORTED)

    def __init__(self, coordinator: Callable[[], TransactionCoordinator | None], now_ms: Callable[[], int]) -> None:
        self._coordinator = coordinator
        self._now_ms = now_ms

    def collect(self) -> Collected:
        coordinator = self._coordinator()
        states: Counter[str] = Counter()
        now_ms = oldest_ms = self._now_ms()
        opened = 0
        for host in () if coordinator is None else coordinator:
            for number, each in enumerate(list(host.shard.transactions.values()), start=1):
                states[each.state.label] += 1
                if each.state.label not in AT_REST:
                    opened += 1
                    oldest_ms = min(oldest_ms, each.start_ms if each.start_ms > 0 else now_ms)
                if not number % STEP:
                    yield
            yield
        ended = {name: 0 if coordinator is None else coordinator.count(name) for name in ("committed", "aborted")}
        return [
            (STATES, [(labels(state=state), count) for state, count in sorted(states.items())]),
            (OPEN, [("", opened)]),
            (OLDEST, [("", (now_ms - oldest_ms) / 1000)]),
            (COMMITTED, [("", ended["committed"])]),
            (ABORTED, [("", ended["aborted"])]),
        ]
