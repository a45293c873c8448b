"""How long a batch's transaction may last, and how many records a batch may have for it.

A transaction that outlives its time-out is aborted by the broker, and the same batch tried again in the same way would
be aborted again, for ever. So batches are limited to what takes a third of that time at the rate that was measured,
every further attempt at a part gets more time, up to the broker's maximum, and a batch that is too slow even for that
is planned anew with fewer records, if nothing of it was written yet.
"""

from __future__ import annotations

RATE_GUESS = 10_000.0  # rows a second, until a rate was measured: about what two cores do
RECORDS_MIN = 10_000
MEASURED_ROWS_MIN, MEASURED_SECONDS_MIN = 1_000, 1.0  # a smaller batch measures what starting one costs
TIMES_LONGER = 4  # per further attempt


def records_per_batch(*, rows_per_second: float | None, rate_max: float | None, timeout_s: float) -> int:
    """What takes a third of the time that a transaction has."""
    rate = rows_per_second if rows_per_second else RATE_GUESS
    if rate_max is not None:
        rate = min(rate, rate_max)
        return max(1, int(rate * timeout_s / 3))  # a rate that was asked for is kept, however low
    return max(RECORDS_MIN, int(rate * timeout_s / 3))


def measured(*, rows: int, seconds: float) -> float | None:
    """The rate of a finished batch, if it was large enough to tell."""
    return rows / seconds if rows >= MEASURED_ROWS_MIN and seconds >= MEASURED_SECONDS_MIN else None


def timeout_of_attempt(timeout_s: float, *, attempt: int, broker_max_s: float) -> float:
    """The first attempt has what is configured, if the broker allows it; each further one four times as much."""
    longer: int = TIMES_LONGER**attempt
    return min(timeout_s * longer, max(broker_max_s, 1.0))


def records_after_timeout(*, rows: int, seconds: float, broker_max_s: float) -> int:
    """How many records to plan for, after an attempt sent so many rows in so many seconds and had no more time."""
    return max(1, int(rows / max(seconds, 0.001) * broker_max_s / 3))
