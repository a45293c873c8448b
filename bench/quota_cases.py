"""Small requests of clients that have quotas of bytes and time which they never reach: what it costs to count."""

import contextlib
import io
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
    at = ("-b", broker.bootstrap)
    _quotas("set", ENTITY, *QUOTAS, *at)
    try:
        with small(broker, scale, case="quota-small") as one_round:
            yield one_round
    finally:
        _quotas("remove", ENTITY, *at)


QUOTA_CASES: dict[str, Case] = {"quota-small": _small}
