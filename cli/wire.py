"""Requests that librdkafka has no call for, sent over a plain connection: one question, one answer."""

from __future__ import annotations

import argparse
import socket
import struct
from typing import TYPE_CHECKING, Any

from tidemark.cli.client import split_address
from tidemark.cli.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from types import TracebackType

CLIENT_ID = b"tidemark-cli"
ANSWER_BYTES_MAX = 100 << 20


class Cluster:
    """Connections to the brokers of a cluster, made when first needed."""

    def __init__(self, args: argparse.Namespace) -> None:
        if dict(args.properties).get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
            raise CommandFailed("This command needs a listener without TLS and SASL.", code=ExitCode.USAGE)
        self._timeout_s: float = args.timeout
        self._bootstrap: str = args.bootstrap
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Cluster:
        self._ask_metadata()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets.values():
            each.close()

    @property
    def brokers(self) -> list[int]:
        return sorted(self._brokers)

    def another_than(self, broker: int) -> int:
        """A broker that can be asked about this one."""
        others = [each for each in self.brokers if each != broker]
        return others[0] if others else broker

    @property
    def partitions(self) -> dict[tuple[str, int], int]:
        """The leader of every partition."""
        return self._leaders

    def leader_of(self, topic: str, partition: int) -> int:
        leader = self._leaders.get((topic, partition))
        if leader is None:
            raise CommandFailed(f"{topic}-{partition}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
        if leader < 0:
            raise CommandFailed(f"{topic}-{partition} has no leader at the moment.")
        return leader

    def coordinator_of(self, transactional_id: str) -> int:
        from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        [found] = self.call(self.brokers[0], request, FindCoordinatorResponse, 4).coordinators
        check(found.error_code, f"The coordinator of {transactional_id}")
        return int(found.node_id)

    def call(self, broker: int, request: Any, response: type[Any], version: int) -> Any:
        return self._call(self._brokers[broker], request, response, version)

    def _ask_metadata(self) -> None:
        from tidemark.protocol.messages.metadata import MetadataRequest, MetadataResponse

        addresses = [split_address(each.strip()) for each in self._bootstrap.split(",")]
        reasons = []
        for address in addresses:
            try:
                answer = self._call(address, MetadataRequest(topics=None), MetadataResponse, 9)
            except CommandFailed as failure:
                reasons.append(str(failure))
                continue
            self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
            self._leaders = {
                (topic.name, each.partition_index): each.leader_id
                for topic in answer.topics
                for each in topic.partitions
            }
            return
        raise CommandFailed(reasons[0], code=ExitCode.NOT_REACHABLE)

    def _call(self, address: tuple[str, int], request: Any, response: type[Any], version: int) -> Any:
        from tidemark.protocol.schema import api, codec

        declared = api(type(request))
        out = bytearray(struct.pack(">hhih", declared.key, version, 0, len(CLIENT_ID)) + CLIENT_ID)
        if version in declared.flexible:
            out.append(0)
        codec(type(request), version).encode(request, out)
        try:
            connection = self._connect(address)
            connection.sendall(struct.pack(">i", len(out)) + out)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise OSError(f"an answer of {size} bytes")
            frame = _receive(connection, size)
            return codec(response, version).decode(memoryview(frame), 5 if version in declared.flexible else 4)
        except (OSError, ValueError) as error:
            host, port = address
            raise CommandFailed(
                f"{host}:{port} did not answer as it should: {error or type(error).__name__}.",
                code=ExitCode.NOT_REACHABLE,
            ) from None

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        if address not in self._sockets:
            self._sockets[address] = socket.create_connection(address, timeout=self._timeout_s)
        return self._sockets[address]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise OSError("it closed the connection")
        received += part
    return bytes(received)


def check(code: int, about: str) -> None:
    from tidemark.protocol.errors import ErrorCode

    if code:
        raise CommandFailed(f"{about}: {ErrorCode(code).name}.")
