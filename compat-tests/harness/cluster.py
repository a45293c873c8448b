"""Several Tidemark processes as one cluster, and what can happen to them."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic
from harness.broker_process import Tidemark
from harness.ports import free_port
from harness.requests import metadata
from harness.waiting import eventually
from harness.wire import Closed, Wire

SECONDS_MAX = 30


class ClusterNode(Tidemark):
    """One broker and controller. `prefix` is put before its command, to run it in a network of its own, say."""

    start_seconds_max = 60

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        node_id: int,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, settings)
        self.node_id = node_id
        self.host = host
        self.port = free_port()
        self.controller_port = free_port()
        self.voters = ""
        self._prefix = list(prefix)

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.host}:{self.controller_port}"

    def command(self) -> list[str]:
        settings = {
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.voters,
            "log.dirs": str(self.data),
            **self.settings,
        }
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [*self._prefix, sys.executable, "-m", "tidemark.broker", *flags]


class Cluster:
    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        settings: Mapping[str, str] | None = None,
        make: Callable[..., ClusterNode] = ClusterNode,
        racks: bool = False,
    ) -> None:
        """With `racks` each node is in one of its own: rack-1, rack-2, …"""
        self.nodes: dict[int, ClusterNode] = {}
        self.client: Mapping[str, str] = {}  # what clients have to say to get in: librdkafka's settings …
        self.user: Mapping[str, str] = {}  # … those of clients that administer nothing
        self.options: Sequence[str] = ()  # … and those of the `tidemark` command
        self._admin: AdminClient | None = None
        self._directory = directory
        self._settings = dict(settings or {})
        self._make = make
        self._racks = racks
        for node_id in range(1, nodes + 1):
            self.nodes[node_id] = self._new_node(node_id)
        self._last_id = nodes
        self.voters = ",".join(each.voter for each in self.nodes.values())
        for node in self.nodes.values():
            node.voters = self.voters

    def _new_node(self, node_id: int) -> ClusterNode:
        path = self._directory / f"node-{node_id}"
        path.mkdir(parents=True)
        own = {**self._settings, "broker.rack": f"rack-{node_id}"} if self._racks else self._settings
        return self._make(path, own, node_id=node_id)

    def add_node(self) -> ClusterNode:
        """One more, under an id that nobody has had, started: it joins those who are there."""
        self._last_id += 1
        node = self.nodes[self._last_id] = self._new_node(self._last_id)
        node.voters = self.voters
        node.start()
        return node

    def remove_node(self, node: ClusterNode) -> None:
        """It is gone, with all that it had."""
        del self.nodes[node.node_id]
        node.close()
        shutil.rmtree(node.data)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(self.nodes.values())

    def start(self) -> None:
        for node in self:
            node.begin()
        for node in self:
            node.await_ready()

    def close(self) -> None:
        """All at once: one after the other would wait in vain for a majority."""
        running = [node for node in self if node.is_running]
        for node in running:
            node.resume()
        for node in running:
            node.ask_to_stop()
        for node in running:
            node.await_stopped()

    # -- what clients see --------------------------------------------------

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2, **self.client})
        return self._admin

    def connect(self, node: ClusterNode) -> Wire:
        return Wire(node.host, node.port)

    def forget_admin(self) -> None:
        """The next one looks for nodes that are there."""
        self._admin = None

    def topic_id(self, topic: str) -> Any:
        return self._describe(topic).topics[0].topic_id

    def create_topic(self, topic: str, *, partitions: int = 1, replicas: int = 3, **configs: str) -> None:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin().create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(SECONDS_MAX)
        eventually(lambda: len(self.leaders(topic)) == partitions, seconds_max=SECONDS_MAX)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition to leader, of those that have one."""
        found = self._describe(topic).topics[0].partitions
        return {each.partition_index: each.leader_id for each in found if each.leader_id >= 0}

    def in_sync(self, topic: str) -> dict[int, frozenset[int]]:
        found = self._describe(topic).topics[0].partitions
        return {each.partition_index: frozenset(each.isr_nodes) for each in found}

    def _describe(self, *topics: str) -> Any:
        """By whoever can answer. (A client would ask a node that stands still, and wait.)"""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            for node in self:
                if not node.is_running or node.is_paused:
                    continue
                try:
                    with self.connect(node) as wire:
                        return metadata(wire, *topics)
                except (OSError, Closed):
                    continue
            assert time.monotonic() < deadline, "no node answers"
            time.sleep(0.05)

    def await_in_sync(self, topic: str, *, replicas: int = 3, seconds_max: float = 60) -> None:
        eventually(lambda: all(len(isr) == replicas for isr in self.in_sync(topic).values()), seconds_max=seconds_max)

    def is_fenced(self, node_id: int) -> bool:
        """Or unknown."""
        return node_id not in {each.node_id for each in self._describe().brokers}

    def elect_preferred(self) -> None:
        """Leaders as they were when the topics were made."""
        self.admin().elect_leaders(ElectionType.PREFERRED).result(SECONDS_MAX)

    def controller(self) -> int:
        return int(self._describe().controller_id)

    def await_controller(self) -> int:
        deadline = time.monotonic() + SECONDS_MAX
        while (found := self.controller()) < 0:
            assert time.monotonic() < deadline, "no controller"
            time.sleep(0.05)
        return found
