"""How long one callback keeps the event loop, and a client on another thread that asks for what may keep it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

import pytest

from tidemark.protocol.schema import api, codec

KEPT_SECONDS_MAX: Final = 0.1  # twice the goal: machines differ


class LoopWatch:
    """The longest callback of this thread's event loop, by processor time, and what it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = 0.0
        self.what = ""
        run = asyncio.events.Handle._run
        thread = threading.get_ident()

        def watched(handle: asyncio.Handle) -> None:
            start = time.thread_time()
            run(handle)
            taken = time.thread_time() - start
            if taken > self.longest and threading.get_ident() == thread:
                self.longest, self.what = taken, repr(handle)[:200]

        monkeypatch.setattr(asyncio.events.Handle, "_run", watched)

    def take(self) -> tuple[float, str]:
        taken, self.longest, self.what = (self.longest, self.what), 0.0, ""
        return taken


def frame_of(request: Any, version: int) -> bytes:
    declared = api(type(request))
    out = bytearray(struct.pack(">hhih", declared.key, version, 1, 4) + b"test")
    if version in declared.flexible:
        out.append(0)
    codec(type(request), version).encode(request, out)
    return struct.pack(">i", len(out)) + out


def answered(address: tuple[str, int], frame: bytes, count: int) -> bool:
    """Send it so many times, and read the answers, in another thread than the loop's. False: the broker hung up."""
    with socket.create_connection(address) as client:
        client.settimeout(60)
        sending = threading.Thread(target=client.sendall, args=[frame * count], daemon=True)
        sending.start()
        for _ in range(count):
            size = client.recv(4, socket.MSG_WAITALL)
            if len(size) < 4:
                return False
            left = int.from_bytes(size)
            while left:
                left -= len(client.recv(min(left, 1 << 20)))
        sending.join()
    return True


def each_answered(
    cases: Iterable[tuple[str, Any, int]], address: tuple[str, int], watch: LoopWatch
) -> dict[str, tuple[float, str]]:
    """In another thread than the loop's: how long each request kept the loop, and what it was that did."""
    kept: dict[str, tuple[float, str]] = {}
    for name, request, version in cases:
        frame = frame_of(request, version)
        del request
        watch.take()
        assert answered(address, frame, 1), name
        kept[name] = watch.take()
    return kept


def too_long(kept: dict[str, tuple[float, str]], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Those that kept the loop too long. All of them are printed, the longest first."""
    with capsys.disabled():
        for name, (seconds, what) in sorted(kept.items(), key=lambda item: -item[1][0]):
            print(f"{seconds * 1000:8.1f} ms  {name}: {what}")
    return {name for name, (seconds, _) in kept.items() if seconds > KEPT_SECONDS_MAX}
