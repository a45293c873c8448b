"""A broker on a thread of its own, with its own event loop: blocking clients and async ones can both talk to it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from tidemark.broker.config import load_config
from tidemark.broker.node import Node

log = logging.getLogger(__name__)

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",  # a test has no late comers to wait for
}


class EmbeddedBroker:
    """A broker that was started; `bootstrap` is what a client's bootstrap.servers wants."""

    def __init__(self, data_directory: Path, settings: Mapping[str, Any]) -> None:
        self.data_directory = data_directory
        self._config = load_config(overrides={**_known_defaults(), "log.dirs": str(data_directory), **settings})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._address = ("", 0)
        self._thread = threading.Thread(target=self._run, name="tidemark-embedded", daemon=True)

    @property
    def bootstrap(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def host(self) -> str:
        return self._address[0]

    @property
    def port(self) -> int:
        return self._address[1]

    def start(self) -> None:
        self._thread.start()
        if not self._started.wait(START_SECONDS_MAX):
            raise TimeoutError(f"the embedded broker did not start within {START_SECONDS_MAX:.0f} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
            self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"the embedded broker did not stop within {STOP_SECONDS_MAX:.0f} s")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        node = Node(self._config)
        await node.start()
        self._address = node.address
        self._started.set()
        await self._stop.wait()
        await node.stop()


def _known_defaults() -> dict[str, str]:
    from tidemark.broker.config import KEYS

    return {name: value for name, value in DEFAULTS.items() if name in KEYS}


@contextmanager
def embedded(data_directory: str | Path | None = None, **settings: Any) -> Iterator[EmbeddedBroker]:
    """A broker for the length of the `with` block.

    Data goes to a temporary directory, removed at the end, unless `data_directory` says otherwise. Settings are
    Kafka's, with underscores for dots: `embedded(num_partitions=4, auto_create_topics_enable=False)`.
    """
    with _directory(data_directory) as path:
        broker = EmbeddedBroker(path, {name.replace("_", "."): value for name, value in settings.items()})
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


@asynccontextmanager
async def embedded_async(data_directory: str | Path | None = None, **settings: Any) -> AsyncIterator[EmbeddedBroker]:
    """As `embedded`, for `async with`: starting and stopping do not block the caller's event loop."""
    manager = embedded(data_directory, **settings)
    broker = await asyncio.to_thread(manager.__enter__)
    try:
        yield broker
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@contextmanager
def _directory(given: str | Path | None) -> Iterator[Path]:
    if given is not None:
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="tidemark-") as path:
        yield Path(path)
