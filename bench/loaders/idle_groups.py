"""Many groups of one member each, by hand on a socket each: they join, and then only say that they live."""

import atexit
import itertools
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from bench import wire
from bench.loaders.connections import raise_file_limit
from bench.loaders.process import serve

_JOIN, _HEARTBEAT, _LEAVE, _SYNC, _FIND = 11, 12, 13, 14, 10
_VERSIONS = {_FIND: 0, _JOIN: 2, _SYNC: 1, _HEARTBEAT: 1, _LEAVE: 1}
_NOT_YET = {14, 15, 16}  # the coordinator is loading, not there yet, or elsewhere
_SESSION_MS = 30_000
_PATIENCE_S = 30.0


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _read_text(buffer: bytes, position: int) -> tuple[bytes, int]:
    size: int = struct.unpack_from(">h", buffer, position)[0]
    return buffer[position + 2 : position + 2 + size], position + 2 + size


class Member:
    """The one member of a group, hence its leader; it knows the few versions above and nothing else."""

    def __init__(self, address: tuple[str, int], *, group: str) -> None:
        self._group = group.encode()
        self._socket = socket.create_connection(address, timeout=_PATIENCE_S)
        # Answered before the next one connects: faster than the broker accepts, its backlog of 50 would overflow, and
        # each time that costs the second after which the system tries again.
        self._socket.sendall(wire.API_VERSIONS)
        wire.read_frame(self._socket)
        self._member = b""
        self._generation = -1

    def _send(self, key: int, body: bytes) -> None:
        head = struct.pack(">hhi", key, _VERSIONS[key], 1) + _text(b"bench")
        self._socket.sendall(_data(head + body))

    def _receive(self) -> bytes:
        return wire.read_frame(self._socket)[4:]

    def _ask(self, key: int, body: bytes) -> bytes:
        self._send(key, body)
        return self._receive()

    def find(self) -> None:
        """Until there is a coordinator: the first question of all makes the offsets topic."""
        deadline = time.monotonic() + _PATIENCE_S
        while struct.unpack_from(">h", self._ask(_FIND, _text(self._group)))[0] != 0:
            if time.monotonic() > deadline:
                raise TimeoutError("no coordinator")
            time.sleep(0.05)

    def ask_to_join(self) -> None:
        subscription = struct.pack(">hi", 0, 1) + _text(b"bench-idle") + _data(b"")
        protocols = struct.pack(">i", 1) + _text(b"range") + _data(subscription)
        body = _text(self._group) + struct.pack(">ii", _SESSION_MS, _SESSION_MS)
        self._send(_JOIN, body + _text(b"") + _text(b"consumer") + protocols)

    def joined(self) -> bool:
        """False where the coordinator is not ready yet and has to be asked again."""
        answer = self._receive()
        error: int = struct.unpack_from(">h", answer, 4)[0]
        if error in _NOT_YET:
            return False
        self._expect(error, "join")
        self._generation = struct.unpack_from(">i", answer, 6)[0]
        _, position = _read_text(answer, 10)  # the protocol
        _, position = _read_text(answer, position)  # the leader
        self._member, _ = _read_text(answer, position)
        return True

    def ask_to_sync(self) -> None:
        assignment = struct.pack(">i", 1) + _text(self._member) + _data(struct.pack(">hii", 0, 0, 0))
        self._send(_SYNC, self._identity() + assignment)

    def synced(self) -> None:
        self._expect(struct.unpack_from(">h", self._receive(), 4)[0], "sync")

    def _identity(self) -> bytes:
        return _text(self._group) + struct.pack(">i", self._generation) + _text(self._member)

    def beat(self) -> None:
        self._expect(struct.unpack_from(">h", self._ask(_HEARTBEAT, self._identity()), 4)[0], "heartbeat")

    def ask_to_leave(self) -> None:
        self._send(_LEAVE, _text(self._group) + _text(self._member))

    def left(self) -> None:
        self._receive()

    def _expect(self, error: int, what: str) -> None:
        if error:
            raise RuntimeError(f"{what} of {self._group.decode()}: error {error}")


def _beat_in_turns(members: list[Member], *, interval_s: float, seconds: float) -> int:
    """Evenly spread, as the heartbeats of clients that started at different times are."""
    started, step = time.monotonic(), interval_s / len(members)
    for number, member in enumerate(itertools.cycle(members)):
        due = started + number * step
        if due > started + seconds:
            return number
        if (ahead := due - time.monotonic()) > 0:
            time.sleep(ahead)
        member.beat()
    return 0


def _join(members: list[Member]) -> None:
    """All at once: a coordinator that gathers writes for some milliseconds would take long with one after the other."""
    deadline, left = time.monotonic() + _PATIENCE_S, members
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} members could not join")
        for member in left:
            member.ask_to_join()
        left = [member for member in left if not member.joined()]
    for member in members:
        member.ask_to_sync()
    for member in members:
        member.synced()


def _leave(members: list[Member]) -> None:
    for member in members:
        member.ask_to_leave()
    for member in members:
        member.left()


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    host, port = parameters["address"]
    count, interval_s = int(parameters["count"]), float(parameters["interval_s"])
    raise_file_limit(2 * count)
    members = [Member((host, port), group=f"bench-idle-{number}") for number in range(count)]
    members[0].find()
    _join(members)
    # Leaving comes after the report: it is no part of the load, but the next round wants to find empty groups.
    atexit.register(_leave, members)
    _beat_in_turns(members, interval_s=interval_s, seconds=interval_s / 2)

    def work() -> dict[str, Any]:
        return {"records": _beat_in_turns(members, interval_s=interval_s, seconds=float(parameters["seconds"]))}

    return work


if __name__ == "__main__":
    serve(prepare)
