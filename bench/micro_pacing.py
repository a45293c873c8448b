"""How well and at what cost background work is paced: our token bucket beside asyncio-throttle.

    python bench/micro_pacing.py     (asyncio-throttle is measured if it is installed)

Pieces of 64 KiB at 20 MB/s for five seconds, as a scrubber or an upload would do them, with a broker's event loop that
has other things to do. asyncio-throttle counts calls, so each piece is a call: 305 per second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tidemark.pacing import AsyncPace

PIECE = 64 << 10
RATE = 20e6
SECONDS = 5.0


async def measured(step: Callable[[], Awaitable[object]]) -> tuple[float, float, float]:
    """The rate that was reached, microseconds of processor time per piece, and the longest pause in ms."""
    began, cpu, count, longest = time.perf_counter(), time.process_time(), 0, 0.0
    last = began
    while (now := time.perf_counter()) - began < SECONDS:
        longest, last = max(longest, now - last), now
        await step()
        count += 1
    return count * PIECE / (time.perf_counter() - began), (time.process_time() - cpu) / count * 1e6, longest * 1e3


async def main() -> None:
    pace = AsyncPace(RATE, clock=asyncio.get_running_loop().time)
    ways: dict[str, Callable[[], Awaitable[object]]] = {"token bucket": lambda: pace(PIECE)}
    try:
        from asyncio_throttle import Throttler
    except ImportError:
        print("asyncio-throttle is not installed")
    else:
        for interval in (0.01, 0.001):
            throttler = Throttler(rate_limit=round(RATE / PIECE), period=1.0, retry_interval=interval)
            ways[f"asyncio-throttle, looks every {interval * 1e3:g} ms"] = throttler.acquire
    for name, step in ways.items():
        rate, cpu_us, longest_ms = await measured(step)
        reached = f"{rate / 1e6:6.2f} MB/s of {RATE / 1e6:g}"
        print(f"{name:36} {reached}, {cpu_us:6.1f} µs per piece, pauses to {longest_ms:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main())
