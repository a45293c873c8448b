"""What commands leave behind inside the tests' process ends with the test; and Ctrl-C reaches commands that tests
start, also when the run itself was started in the background."""

import logging
import signal
from collections.abc import Iterator

import pytest

from tidemark.broker.logs.handler import LimitedHandler

# A shell ignores SIGINT for what it puts in the background, and processes hand that down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """`tidemark start` writes the log of its process to the standard error of the moment, which ends with the test.
    Whatever logs later, on any thread, would print a traceback instead; and that parses code while others do
    (SystemError in Python 3.11: gh-106905)."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in root.handlers.copy():
        if isinstance(handler, LimitedHandler):
            root.removeHandler(handler)
