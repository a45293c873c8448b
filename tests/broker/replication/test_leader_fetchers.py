from __future__ import annotations

from typing import Any

from tidemark.broker.replication.leader_fetchers import LeaderFetchers


async def test_fetchers_stop_though_what_is_followed_changes_meanwhile() -> None:
    unused: Any = None
    fetchers = LeaderFetchers(unused, unused, unused)
    stopped: list[int] = []

    class Stopping:
        def __init__(self, leader: int) -> None:
            self.leader = leader

        async def stop(self) -> None:
            stopped.append(self.leader)
            fetchers._fetchers.pop(3, None)  # its leader was fenced at this very moment

    known: dict[int, Any] = {leader: Stopping(leader) for leader in (1, 2, 3, 4)}
    fetchers._fetchers = known
    await fetchers.stop()
    assert not fetchers._fetchers
    assert {1, 2, 4} <= set(stopped)
