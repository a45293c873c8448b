"""How many handshakes there may be at once, in all and of one host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tidemark.broker.tls.handshakes import PER_HOST_MAX, UNDER_WAY_MAX, Handshakes


@pytest.fixture
async def handshakes() -> Any:
    made = Handshakes(asyncio.get_running_loop())
    yield made
    made.close()


def begun(handshakes: Handshakes, host: str, count: int) -> Iterator[Any]:
    for _ in range(count):
        layer: Any = object()  # it is only kept and counted here
        if handshakes.begin(layer, host):
            yield layer


async def test_one_host_cannot_keep_others_out(handshakes: Handshakes) -> None:
    greedy = list(begun(handshakes, "10.0.0.1", PER_HOST_MAX + 50))
    assert len(greedy) == PER_HOST_MAX
    assert len(list(begun(handshakes, "10.0.0.2", 10))) == 10
    handshakes.forget(greedy[0])
    assert len(list(begun(handshakes, "10.0.0.1", 10))) == 1, "as many as have ended"


async def test_all_hosts_together_have_a_limit(handshakes: Handshakes) -> None:
    hosts = [f"10.0.0.{number}" for number in range(8)]
    taken = [layer for host in hosts for layer in begun(handshakes, host, PER_HOST_MAX)]
    assert len(taken) == UNDER_WAY_MAX
    for layer in taken:
        handshakes.forget(layer)
    assert len(list(begun(handshakes, "10.0.0.9", 1))) == 1
