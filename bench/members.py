"""A consumer group seen from outside: its member processes, who owns what, and when everything was owned."""

import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bench.loaders.process import Load, Loader

TIMEOUT_S = 60.0


class MemberProcess(Loader):
    """A loader whose lines are events, read by a thread as they come."""

    def __init__(self, parameters: Mapping[str, Any], *, events: "queue.Queue[dict[str, Any]]") -> None:
        super().__init__(Load(module="members", parameters=parameters))
        self.numbers = range(parameters["first"], parameters["first"] + parameters["count"])
        self._events = events

    def go(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        super().go()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put({"process": self, **json.loads(line)})

    def kill(self) -> None:
        """As kill -9 does it: no goodbye to the group."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        if not self._process.stdin or not self._process.stdin.closed:
            self.stop()
        self._process.wait(TIMEOUT_S)


class Group:
    """Who owns which partition, by the members' own word."""

    def __init__(self, processes: Sequence[MemberProcess], *, events: "queue.Queue[dict[str, Any]]") -> None:
        self._events = events
        self._processes = list(processes)
        self._owned: dict[int, list[int]] = {}
        self.last_beat = 0.0

    def start(self) -> float:
        """When the members were started."""
        for process in self._processes:
            process.wait_ready()
        started = time.monotonic()
        for process in self._processes:
            process.go()
        return started

    def lose(self, process: MemberProcess) -> None:
        process.kill()
        self._processes.remove(process)
        for number in process.numbers:
            self._owned.pop(number, None)

    def wait_until_stable(self, partitions: int) -> float:
        """When the last member got what made every partition owned once, and every member an owner."""
        members = {number for process in self._processes for number in process.numbers}
        deadline, at = time.monotonic() + TIMEOUT_S, 0.0
        while not self._stable(members, partitions=partitions):
            try:
                at = max(at, self._take(self._events.get(timeout=max(0.01, deadline - time.monotonic()))))
            except queue.Empty:
                owners = sum(1 for number in members if self._owned.get(number))
                raise TimeoutError(f"{owners} of {len(members)} members own something after {TIMEOUT_S} s") from None
        return at

    def _take(self, event: dict[str, Any]) -> float:
        if event["process"] not in self._processes:
            return 0.0
        if "beat" in event:
            self.last_beat = event["at"]
        else:
            self._owned[event["member"]] = event["owned"]
        return float(event["at"])

    def pump(self, seconds: float) -> None:
        """Takes events in for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._take(self._events.get(timeout=left))
            except queue.Empty:
                return

    def _stable(self, members: set[int], *, partitions: int) -> bool:
        if not all(self._owned.get(number) for number in members):
            return False
        owned = [partition for number in members for partition in self._owned[number]]
        return len(owned) == partitions and len(set(owned)) == partitions


@contextmanager
def member_processes(shares: Sequence[Mapping[str, Any]]) -> Iterator[tuple[list[MemberProcess], Group]]:
    """One process per share (its client settings, topic and count); they leave the group at the end, all at once."""
    events: queue.Queue[dict[str, Any]] = queue.Queue()
    processes: list[MemberProcess] = []
    first = 0
    for share in shares:
        processes.append(MemberProcess({**share, "first": first}, events=events))
        first += int(share["count"])
    try:
        yield processes, Group(processes, events=events)
    finally:
        for process in processes:
            process.stop()
        for process in processes:
            process.close()
