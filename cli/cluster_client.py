"""Requests that librdkafka has no call for, to the brokers of a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeVar

from tidemark.cli.client import bootstrap_addresses
from tidemark.cli.security import security_of
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidemark.wire_client import BrokerConnections, NoAnswer, error_name

if TYPE_CHECKING:
    from types import TracebackType

CLIENT_ID: Final = "tidemark-cli"
TRANSACTIONAL_ID: Final = 1  # the kind of key in FindCoordinator

TopicPartition = tuple[str, int]
T = TypeVar("T")


class ClusterClient:
    """A `with` block asks for the metadata first; after that every broker can be asked by its id."""

    def __init__(self, args: argparse.Namespace) -> None:
        addresses = bootstrap_addresses(args.bootstrap)
        self._brokers = BrokerConnections(
            addresses, client_id=CLIENT_ID, timeout_s=args.timeout, security=security_of(args)
        )
        self._leaders: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        self._ask_metadata()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._brokers.close()

    @property
    def brokers(self) -> list[int]:
        return self._brokers.node_ids

    def broker_beside(self, broker: int) -> int:
        """A broker that can be asked about this one: another one, if there is one."""
        return next((each for each in self.brokers if each != broker), broker)

    @property
    def leaders(self) -> dict[TopicPartition, int]:
        """The leader of every partition; -1 where there is none."""
        return self._leaders

    def leader_of(self, topic: str, partition: int) -> int:
        leader = self._leaders.get((topic, partition))
        if leader is None:
            raise CommandFailed(f"{topic}-{partition}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
        if leader < 0:
            raise CommandFailed(f"{topic}-{partition} has no leader at the moment.")
        return leader

    def coordinator_of(self, transactional_id: str) -> int:
        request = FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=[transactional_id])
        [found] = self.call_any(request, FindCoordinatorResponse, 4).coordinators
        check(found.error_code, f"The coordinator of {transactional_id}")
        return found.node_id

    def call(self, broker: int, request: object, response: type[T], version: int) -> T:
        try:
            return self._brokers.ask(broker, request, response, version)
        except NoAnswer as error:
            _raise_not_reachable(error)

    def call_any(self, request: object, response: type[T], version: int) -> T:
        """For what every broker can answer, or forwards to the controller."""
        try:
            return self._brokers.ask_any(request, response, version)
        except NoAnswer as error:
            _raise_not_reachable(error)

    def _ask_metadata(self) -> None:
        found = self.call_any(MetadataRequest(topics=None), MetadataResponse, 9)
        self._brokers.set_addresses({each.node_id: (each.host, each.port) for each in found.brokers})
        self._leaders = {
            (topic.name or "", each.partition_index): each.leader_id
            for topic in found.topics
            for each in topic.partitions
        }


def _raise_not_reachable(error: NoAnswer) -> NoReturn:
    raise CommandFailed(f"{error}.", code=ExitCode.NOT_REACHABLE) from None


def check(code: int, about: str, message: str | None = None) -> None:
    """Fail with the broker's own words, or with the name of its error code."""
    if code:
        raise CommandFailed(f"{about}: {message or error_name(code)}".rstrip(".") + ".")
