"""Topics, groups, lag and the cluster over HTTP: Kafka's admin requests, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.consuming import EARLIEST, LATEST, Consuming
from tidemark.broker.http.inputs import Fields, body_of, fail
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.router import HttpRoute
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemark.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidemark.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

METADATA_VERSION: Final = 12
TIMEOUT_MS: Final = 30_000
TOPIC_RESOURCE: Final = 2
SET, DELETE = 0, 1
INT_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1


class Admin:
    def __init__(
        self, calls: Calls, leaders: Leaders, consuming: Consuming, *, brokers: Callable[[], list[int]]
    ) -> None:
        """`brokers`: the ids of all that are registered and not fenced."""
        self._calls = calls
        self._leaders = leaders
        self._consuming = consuming
        self._brokers = brokers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/cluster", self.cluster),
            HttpRoute("GET", "/topics", self.topics),
            HttpRoute("POST", "/topics", self.create),
            HttpRoute("GET", "/topics/{topic}", self.topic),
            HttpRoute("DELETE", "/topics/{topic}", self.delete),
            HttpRoute("GET", "/topics/{topic}/configs", self.configs),
            HttpRoute("PATCH", "/topics/{topic}/configs", self.alter_configs),
            HttpRoute("GET", "/groups", self.groups),
            HttpRoute("GET", "/groups/{group}/offsets", self.offsets),
            HttpRoute("PUT", "/groups/{group}/offsets", self.reset_offsets),
        ]

    async def cluster(self, request: HttpRequest) -> HttpResponse:
        caller = self._calls.caller(request)
        answer = await self._calls.ask(DescribeClusterRequest(), DescribeClusterResponse, caller)
        _check(answer.error_code, answer.error_message)
        brokers = [
            {"id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack} for each in answer.brokers
        ]
        return json_response(
            {"cluster_id": answer.cluster_id, "controller_id": answer.controller_id, "brokers": brokers}
        )

    # -- topics ------------------------------------------------------------

    async def topics(self, request: HttpRequest) -> HttpResponse:
        answer = await self._metadata(None, self._calls.caller(request))
        found = [
            {"name": each.name, "partitions": len(each.partitions), "internal": each.is_internal}
            for each in sorted(answer.topics, key=lambda each: each.name or "")
            if not each.error_code
        ]
        return json_response({"topics": found})

    async def topic(self, request: HttpRequest) -> HttpResponse:
        name = request.path_values["topic"]
        described = (await self._metadata(name, self._calls.caller(request))).topics[0]
        _check(described.error_code, None if described.error_code != 3 else f"There is no topic {name[:250]}.")
        partitions = [
            {
                "partition": each.partition_index,
                "leader": each.leader_id,
                "replicas": list(each.replica_nodes),
                "isr": list(each.isr_nodes),
            }
            for each in sorted(described.partitions, key=lambda each: each.partition_index)
        ]
        return json_response({"name": described.name, "internal": described.is_internal, "partitions": partitions})

    async def _metadata(self, topic: str | None, caller: HttpCaller) -> MetadataResponse:
        wanted = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return await self._calls.ask(request, MetadataResponse, caller, version=METADATA_VERSION)

    async def create(self, request: HttpRequest) -> HttpResponse:
        fields = Fields(body_of(request), where="body")
        configs = fields.texts("configs")
        topic = CreatableTopic(
            name=fields.text("name"),
            num_partitions=fields.integer("partitions", default=-1, least=1, most=INT_MAX),
            replication_factor=fields.integer("replication_factor", default=-1, least=1, most=32767),
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        fields.refuse_others()
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await self._calls.ask(asked, CreateTopicsResponse, self._calls.caller(request))
        created = answer.topics[0]
        _check(created.error_code, created.error_message)
        where = (("Location", f"/topics/{created.name}"),)
        shown = {
            "name": created.name,
            "partitions": created.num_partitions,
            "replication_factor": created.replication_factor,
        }
        return json_response(shown, status=201, headers=where)

    async def delete(self, request: HttpRequest) -> HttpResponse:
        asked = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=request.path_values["topic"])],
            topic_names=[request.path_values["topic"]],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await self._calls.ask(asked, DeleteTopicsResponse, self._calls.caller(request))
        _check(answer.responses[0].error_code, answer.responses[0].error_message)
        return HttpResponse(status=204)

    async def configs(self, request: HttpRequest) -> HttpResponse:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=request.path_values["topic"], configuration_keys=None
        )
        asked = DescribeConfigsRequest(resources=[resource])
        answer = await self._calls.ask(asked, DescribeConfigsResponse, self._calls.caller(request))
        found = answer.results[0]
        _check(found.error_code, found.error_message)
        return json_response({"configs": {each.name: each.value for each in found.configs}})

    async def alter_configs(self, request: HttpRequest) -> HttpResponse:
        """A value of null takes the topic's own setting away."""
        fields = Fields(body_of(request), where="body")
        changes: Mapping[str, str | None] = fields.texts("configs")
        fields.refuse_others()
        configs = [
            AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
            for name, value in changes.items()
        ]
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=request.path_values["topic"], configs=configs
        )
        asked = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self._calls.ask(asked, IncrementalAlterConfigsResponse, self._calls.caller(request))
        _check(answer.responses[0].error_code, answer.responses[0].error_message)
        return HttpResponse(status=204)

    # -- groups ------------------------------------------------------------

    async def groups(self, request: HttpRequest) -> HttpResponse:
        """Of all coordinators: each knows its own."""
        caller = self._calls.caller(request)
        found: dict[str, dict[str, Any]] = {}
        for node_id in self._brokers():
            answer = await self._calls.ask(ListGroupsRequest(), ListGroupsResponse, caller, node_id=node_id)
            _check(answer.error_code, None)
            for each in answer.groups:
                found[each.group_id] = {
                    "group": each.group_id,
                    "state": each.group_state,
                    "type": each.group_type,
                    "coordinator": node_id,
                }
        return json_response({"groups": [found[name] for name in sorted(found)]})

    async def offsets(self, request: HttpRequest) -> HttpResponse:
        """What a group has committed, and how far behind it is."""
        group, caller = request.path_values["group"], self._calls.caller(request)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=False)
        node_id = await self._leaders.coordinator_of(group, caller)
        answer = await self._calls.ask(asked, OffsetFetchResponse, caller, version=9, node_id=node_id)
        _check(answer.groups[0].error_code, None)
        rows = []
        for topic in answer.groups[0].topics:
            for each in topic.partitions:
                end = await self._consuming.offset_at(topic.name, each.partition_index, LATEST, caller)
                rows.append(
                    {
                        "topic": topic.name,
                        "partition": each.partition_index,
                        "offset": each.committed_offset,
                        "end_offset": end,
                        "lag": max(end - each.committed_offset, 0),
                    }
                )
        return json_response({"group": group, "offsets": rows, "lag": sum(row["lag"] for row in rows)})

    async def reset_offsets(self, request: HttpRequest) -> HttpResponse:
        """Of a group without members: for partitions, an offset, or `earliest`, `latest`, or a time."""
        group, caller = request.path_values["group"], self._calls.caller(request)
        fields = Fields(body_of(request), where="body")
        wishes = fields.listing("offsets")
        fields.refuse_others()
        if not 0 < len(wishes) <= 1000:
            raise fail("body.offsets: it must have 1 to 1000 entries.")
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for number, wish in enumerate(wishes):
            topic, partition, offset = await self._reset_to(Fields(wish, where=f"offsets[{number}]"), caller)
            asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            topics.setdefault(topic, []).append(asked)
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        node_id = await self._leaders.coordinator_of(group, caller)
        answer = await self._calls.ask(commit, OffsetCommitResponse, caller, version=9, node_id=node_id)
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                _check(each.error_code, None)
        return HttpResponse(status=204)

    async def _reset_to(self, wish: Fields, caller: HttpCaller) -> tuple[str, int, int]:
        topic = wish.text("topic")
        partition = wish.integer("partition", least=0, most=INT_MAX)
        count = await self._leaders.partition_count(topic, caller)
        timestamp = wish.optional_integer("timestamp", least=0, most=OFFSET_MAX)
        if wish.has("to"):
            timestamp = {"earliest": EARLIEST, "latest": LATEST}[wish.choice("to", ("earliest", "latest"), default="")]
        if partition >= count:
            raise Problem.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}.")
        if timestamp is None:
            offset = wish.integer("offset", least=0, most=OFFSET_MAX)
        else:
            offset = await self._consuming.offset_at(topic, partition, timestamp, caller)
            if offset < 0:
                offset = await self._consuming.offset_at(topic, partition, LATEST, caller)
        wish.refuse_others()
        return topic, partition, offset


def _check(code: int, message: str | None) -> None:
    if code:
        raise Problem.of(code, message)
