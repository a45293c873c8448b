"""Many consumers of one group in one process, polled in turns; every change of what one owns is one line of output.

Unlike the other loads it goes on until its input ends: the group is watched from outside (bench.members).
Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

import json
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, TopicPartition

PAUSE_S = 0.002
LEAVE_S = 10.0


def _tell(**event: Any) -> None:
    """In one write: consumers that close in threads of their own speak at the same time."""
    os.write(sys.stdout.fileno(), json.dumps({"at": time.monotonic(), **event}).encode() + b"\n")


class _Beats(logging.Handler):
    """Tells when the client last showed that it lives: the start of the session that a kill lets run out."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "Sent" in text and "Heartbeat" in text:
            _tell(beat=True)


class Member:
    def __init__(self, settings: dict[str, Any], *, number: int, topic: str, trace: bool) -> None:
        self._number = number
        self._owned: set[int] = set()
        if trace:
            logger = logging.Logger("members")
            logger.addHandler(_Beats())
            self._consumer = Consumer({**settings, "debug": "protocol"}, logger=logger)
        else:
            self._consumer = Consumer(settings)
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned |= {one.partition for one in partitions}
        _tell(member=self._number, owned=sorted(self._owned))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned -= {one.partition for one in partitions}
        _tell(member=self._number, owned=sorted(self._owned))

    def poll(self) -> None:
        self._consumer.poll(0)

    def close(self) -> None:
        self._consumer.close()


def _leave(members: list[Member]) -> None:
    """All at once: one after the other, each would wait for the rebalance that the one before it began."""
    pool = ThreadPoolExecutor(max_workers=len(members))
    leaving = [pool.submit(member.close) for member in members]
    deadline = time.monotonic() + LEAVE_S
    while not all(one.done() for one in leaving) and time.monotonic() < deadline:
        time.sleep(0.01)
    os._exit(0)


def _wait_for_end(end: threading.Event) -> None:
    sys.stdin.read()
    end.set()


def main() -> None:
    parameters = json.loads(sys.argv[1])
    first, count, trace = int(parameters["first"]), int(parameters["count"]), bool(parameters.get("trace"))
    print("ready", flush=True)
    sys.stdin.readline()
    end = threading.Event()
    threading.Thread(target=_wait_for_end, args=(end,), daemon=True).start()
    numbers = range(first, first + count)
    members = [Member(parameters["client"], number=n, topic=parameters["topic"], trace=trace) for n in numbers]
    while not end.is_set():
        for member in members:
            member.poll()
        time.sleep(PAUSE_S)
    _leave(members)


if __name__ == "__main__":
    main()
