"""The log of a broker's own process. A broker inside somebody else's program leaves logging as it is there."""

from __future__ import annotations

import logging
from typing import TextIO

from tidemark.broker.logs.formats import ConsoleFormatter, JsonFormatter
from tidemark.broker.logs.handler import LimitedHandler


def set_up_logs(stream: TextIO, *, level: str, form: str, node_id: int) -> None:
    handler = LimitedHandler(stream)
    handler.setFormatter(JsonFormatter(node_id=node_id) if form == "json" else ConsoleFormatter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
