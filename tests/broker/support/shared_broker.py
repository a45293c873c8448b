"""A broker on a thread and an event loop of its own, for many tests, each of which has its own loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tidemark.broker.config import load_config
from tidemark.broker.node import Node

SECONDS_MAX = 30
T = TypeVar("T")


class SharedBroker:
    def __init__(self, directory: Path, **settings: Any) -> None:
        overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.node = Node(load_config(overrides=overrides | named))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="shared broker")

    @property
    def address(self) -> tuple[str, int]:
        return self.node.address

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """On the broker's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS_MAX)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await self.node.start()
        self._started.set()
        await self._stopping.wait()
        await self.node.stop()

    def __enter__(self) -> SharedBroker:
        self._thread.start()
        assert self._started.wait(SECONDS_MAX), "the broker did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "the broker did not stop"
