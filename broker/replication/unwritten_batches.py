"""Producers whose batch a disk did not take a moment ago.

The batches that such a producer has sent meanwhile skip a sequence number. Told so, some clients take their producer
id for lost, begin anew with the next epoch, and send again whatever they have no answer for: to other partitions, too,
where it may have been written. Told of the disk, they wait for the first batch's retry.
"""

from __future__ import annotations

from typing import Final

from tidemark.environment import monotonic

IN_FLIGHT_SECONDS_MAX: Final = 1.0  # what was sent before the client heard of the failure has arrived by then
PRODUCERS_MAX: Final = 1000
NO_PRODUCER: Final = -1


class UnwrittenBatches:
    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[int, tuple[Exception, float]] = {}  # by producer id: why, and when

    def __bool__(self) -> bool:
        return bool(self._failures)

    def add(self, producer_id: int, error: Exception) -> None:
        if producer_id != NO_PRODUCER:
            if len(self._failures) >= PRODUCERS_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[producer_id] = error, monotonic()

    def written(self, producer_id: int) -> None:
        self._failures.pop(producer_id, None)

    def why_skipped(self, producer_id: int) -> Exception | None:
        """Why a sequence number of this producer is missing, if that is the disk's doing."""
        error, at = self._failures.get(producer_id, (None, 0.0))
        return error if monotonic() < at + IN_FLIGHT_SECONDS_MAX else None
