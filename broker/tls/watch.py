"""Watches for renewed certificates: the files of the stores again and again, and the settings that name them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.periodic import Job
from tidemark.broker.tls.endpoints import TlsEndpoints


class CertificateWatch:
    def __init__(self, tls: TlsEndpoints, current: Callable[[], BrokerConfig]) -> None:
        self._tls = tls
        self._current = current
        self._renewing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def jobs(self) -> Iterator[Job]:
        interval_ms = self._current().tidemark_ssl_watch_interval_ms
        if interval_ms > 0:
            yield Job(lambda: interval_ms, self.renew)

    async def renew(self) -> None:
        async with self._renewing:
            await self._tls.renew(self._current())

    def settings_changed(self) -> None:
        task = asyncio.get_running_loop().create_task(self.renew())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
