"""A broker on a thread of its own, with its own event loop: blocking clients and async ones can both talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidemark import _forking
from tidemark.broker.config import load_config
from tidemark.broker.node import Node
from tidemark.broker.server.crowd import BrokerLoop, CrowdSelector

if TYPE_CHECKING:
    from tidemark._embedded_security import Security

log = logging.getLogger(__name__)

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",  # a test has no late members to wait for
}


class BrokerFailed(Exception):
    """The broker could not go on while it was in use; its cause says why."""


class EmbeddedBroker:
    """A broker that was started; `bootstrap` is what a client's bootstrap.servers wants."""

    def __init__(self, data_directory: Path, settings: Mapping[str, Any], *, security: str | None = None) -> None:
        self.data_directory = data_directory
        self.security = None if security is None else _secured(security, data_directory)
        secured = {} if self.security is None else self.security.broker_settings
        common = {**_known_defaults(), **secured, "log.dirs": str(data_directory)}
        self._config = load_config(overrides={**common, **settings})
        self._selector = CrowdSelector()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._start_failure: BaseException | None = None
        self._failure: BaseException | None = None
        self._address = ("", 0)
        self._thread = threading.Thread(target=self._run, name="tidemark-embedded", daemon=True)

    @property
    def bootstrap(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def client_settings(self) -> dict[str, str | int | float | bool]:
        """What a client of librdkafka's or Java's naming needs to connect, bootstrap.servers included."""
        return {"bootstrap.servers": self.bootstrap, **({} if self.security is None else self.security.client_settings)}

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
        if self._start_failure is not None:
            self._thread.join()
            raise self._start_failure

    def stop(self) -> None:
        """Stop it, and raise BrokerFailed if it could not go on while it was in use."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop is closed already: it has failed, and ends by itself
                loop.call_soon_threadsafe(stop.set)
            self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"the embedded broker did not stop within {STOP_SECONDS_MAX:.0f} s")
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise BrokerFailed if the broker could not go on."""
        if self._failure is not None:
            raise BrokerFailed(f"the embedded broker failed: {self._failure!r}") from self._failure

    def registered_descriptors(self) -> list[int]:
        """The descriptors that the event loop waits for, and its own."""
        if self._selector.get_map() is None:  # closed
            return []
        own = [self._selector.fileno()] if hasattr(self._selector, "fileno") else []
        return [*own, *self._selector.descriptors()]

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: BrokerLoop(self._selector)) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._started.is_set():
                self._failure = self._failure or error
            else:
                self._start_failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        node = Node(self._config, failed=self._fail)
        await node.start()
        self._address = node.address
        self._started.set()
        await self._stop.wait()
        await node.stop()

    def _fail(self, error: BaseException) -> None:
        """A node that cannot go on closes its connections, so that its clients notice; the test fails at its end."""
        self._failure = self._failure or error
        if self._stop is not None:
            self._stop.set()


def _known_defaults() -> dict[str, str]:
    from tidemark.broker.config import KEYS

    return {name: value for name, value in DEFAULTS.items() if name in KEYS}


def _secured(kind: str, directory: Path) -> Security:
    from tidemark._embedded_security import secured

    return secured(kind, directory / "security")


@contextmanager
def embedded(
    data_directory: str | Path | None = None, *, security: str | None = None, **settings: Any
) -> Iterator[EmbeddedBroker]:
    """A broker for the length of the `with` block.

    Data goes to a temporary directory, removed at the end, unless `data_directory` says otherwise. Settings are
    Kafka's, with underscores for dots: `embedded(num_partitions=4, auto_create_topics_enable=False)`.

    `security`: "scram", "tls", or "mtls" where clients have certificates as well. `broker.client_settings` is then what
    a client needs, with a password or certificates that were made for this broker.
    """
    with _directory(data_directory) as path:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        broker = EmbeddedBroker(path, named, security=security)
        broker.start()
        _forking.watch(broker)
        owner = os.getpid()
        try:
            yield broker
        finally:
            if os.getpid() == owner:  # a forked child that leaves the block stops nothing
                broker.stop()


@asynccontextmanager
async def embedded_async(
    data_directory: str | Path | None = None, *, security: str | None = None, **settings: Any
) -> AsyncIterator[EmbeddedBroker]:
    """As `embedded`, for `async with`: starting and stopping do not block the caller's event loop."""
    manager = embedded(data_directory, security=security, **settings)
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
    owner = os.getpid()
    path = Path(tempfile.mkdtemp(prefix="tidemark-"))
    try:
        yield path
    finally:
        if os.getpid() == owner:  # not in a forked child: the broker goes on in its parent
            shutil.rmtree(path, ignore_errors=True)
