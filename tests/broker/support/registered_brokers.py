"""Node 1 as the controller of a cluster, and brokers that exist only by their registrations and heartbeats.

So a test has leaders, replicas and coordinators elsewhere, and every epoch, without a second process.
"""

from __future__ import annotations

import socket
from typing import Any

from harness.ports import free_port

from tidemark.broker.cluster.broker_membership import supported_features
from tidemark.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from tidemark.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tidemark.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tidemark.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.join_quorum import JoinQuorumRequest


def features(**changed: tuple[int, int]) -> list[Feature]:
    """Those of this build; a dot in a name is given as an underscore."""
    named = {name.replace("_", "."): each for name, each in changed.items()}
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in {**supported_features(), **named}.items()
    ]


class OneNodeCluster:
    """`client` is connected as clients are, `controller` as brokers are."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self._sockets: list[socket.socket] = []

    async def start(self, start_node: Any, connect: Any, **settings: Any) -> None:
        port = free_port()
        self.node = await start_node(
            node_id=1,
            listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
            controller_listener_names="CONTROLLER",
            controller_quorum_voters=f"1@127.0.0.1:{port}",
            controlled_shutdown_enable=False,  # no other broker could take over
            **settings,
        )
        self.client = await connect(self.node)
        self.controller = await connect(self.node, ("127.0.0.1", port))
        self.address = ("127.0.0.1", port)
        self.epochs[1] = self.image.brokers[1].broker_epoch

    @property
    def image(self) -> Any:
        return self.node._store.image

    def partition(self, topic: str = "t", index: int = 0) -> Any:
        return self.image.topics[topic].partitions[index]

    async def register(self, broker_id: int, *, version: int = 4, **fields: Any) -> Any:
        """Something listens at the broker's address, so that it does not count as dead."""
        where = Listener(name="PLAINTEXT", host="127.0.0.1", port=self._listening())
        registration: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": self.image.cluster_id,
            "incarnation_id": bytes([broker_id]) * 16,
            "listeners": [where],
            "features": features(),
        }
        answer = await self.controller.ask(BrokerRegistrationRequest(**registration | fields), version)
        if answer.error_code == 0:
            self.epochs[broker_id] = answer.broker_epoch
        return answer

    def end_session(self, broker_id: int) -> None:
        """As if it had been silent for long."""
        self.node._cluster.controller._sessions._sessions.pop(broker_id)

    async def heartbeat(self, broker_id: int, *, version: int = 1, **fields: Any) -> Any:
        known = {
            "broker_id": broker_id,
            "broker_epoch": self.epochs[broker_id],
            "current_metadata_offset": self.node._store.applied_index,
        }
        return await self.controller.ask(BrokerHeartbeatRequest(**known | fields), version)

    async def join_quorum(self, node_id: int, **fields: Any) -> Any:
        """A node that follows the metadata, without a vote."""
        known: dict[str, Any] = {
            "node_id": node_id,
            "cluster_id": self.image.cluster_id,
            "host": "127.0.0.1",
            "port": self._listening(),
            "directory_id": bytes([node_id]) * 16,
        }
        return await self.controller.ask(JoinQuorumRequest(**known | fields))

    @property
    def configuration(self) -> Any:
        return self.node._store.driver.node.configuration

    @property
    def members(self) -> set[int]:
        return {each.node_id for each in self.configuration.members}

    def _listening(self) -> int:
        listening = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listening)
        return int(listening.getsockname()[1])

    async def join(self, *broker_ids: int) -> None:
        """Registered, caught up and unfenced."""
        for broker_id in broker_ids:
            assert (await self.register(broker_id)).error_code == 0
            answer = await self.heartbeat(broker_id)
            assert (answer.error_code, answer.is_fenced) == (0, False)

    async def create(self, name: str, *replicas: list[int]) -> None:
        """A topic with these replicas, partition by partition; the first of each leads."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
        ]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        answer = await self.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def alter_isr(self, *isr: int, leader: int, topic: str = "t", version: int = 3, **wrong: Any) -> Any:
        """The answer about partition 0, for the leader that asks; `wrong` replaces what that would say."""
        now = self.partition(topic)
        known: dict[str, Any] = {
            "partition_index": 0,
            "leader_epoch": now.leader_epoch,
            "partition_epoch": now.partition_epoch,
            "new_isr": list(isr),
            "new_isr_with_epochs": [BrokerState(broker_id=each, broker_epoch=self.epochs[each]) for each in isr],
        }
        data = TopicData(topic_id=self.image.topics[topic].topic_id, partitions=[PartitionData(**known | wrong)])
        request = AlterPartitionRequest(broker_id=leader, broker_epoch=self.epochs[leader], topics=[data])
        answer = await self.controller.ask(request, version)
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]

    def close(self) -> None:
        for each in self._sockets:
            each.close()
