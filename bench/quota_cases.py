"""Small requests of clients that have quotas of bytes and time which they never reach: what it costs to count."""

import contextlib
import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.brokers import Running
from bench.cases import Case, Round, Scale, small
from tidemark.cli.main import main as tidemark

ENTITY: Final = "--for-default-client-id"
QUOTAS: Final = ("--producer-byte-rate", "1000000000", "--request-percentage", "10000")


def _quotas(*words: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = tidemark(["quotas", *words])
    assert code == 0, said.getvalue()


@contextmanager
def _small(broker: Running, scale: Scale) -> Iterator[Round]:
    """The same load without and with quotas, right after each other: what it adds is less than a machine changes by
    from one minute to the next."""
    at = ("-b", broker.bootstrap)
    orders = itertools.cycle(((False, True), (True, False)))
    with small(broker, scale, case="quota-small") as one_round:

        def limited() -> dict[str, float]:
            _quotas("set", ENTITY, *QUOTAS, *at)
            try:
                return one_round()
            finally:
                _quotas("remove", ENTITY, *at)

        def both() -> dict[str, float]:
            figures = {is_limited: limited() if is_limited else one_round() for is_limited in next(orders)}
            without_us = figures[False]["quota-small.cpu_us"]
            added_us = figures[True]["quota-small.cpu_us"] - without_us
            return {**figures[True], "quota-small.without_us": without_us, "quota-small.added_us": added_us}

        yield both


QUOTA_CASES: dict[str, Case] = {"quota-small": _small}
