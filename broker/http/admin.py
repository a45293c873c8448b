"""Topics, settings and the cluster over HTTP: Kafka's admin requests, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from tidemark.broker.core.sliced_work import finished_in_background, in_slices
from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.inputs import fields_of, path_integer
from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.problems import Problem, check
from tidemark.broker.http.router import HttpRoute
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
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
from tidemark.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

METADATA_VERSION: Final = 12
TIMEOUT_MS: Final = 30_000
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
SET, DELETE = 0, 1
INT_MAX: Final = (1 << 31) - 1


class Admin:
    def __init__(self, calls: Calls, *, brokers: Callable[[], list[int]]) -> None:
        """`brokers`: the ids of all that are registered and not fenced."""
        self._calls = calls
        self._brokers = brokers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/cluster", self.cluster, query=()),
            HttpRoute("GET", "/brokers/{broker}/configs", self.broker_configs, query=()),
            HttpRoute("PATCH", "/brokers/{broker}/configs", self.alter_broker_configs, query=()),
            HttpRoute("GET", "/topics", self.topics, query=()),
            HttpRoute("POST", "/topics", self.create, query=()),
            HttpRoute("GET", "/topics/{topic}", self.topic, query=()),
            HttpRoute("PATCH", "/topics/{topic}", self.add_partitions, query=()),
            HttpRoute("DELETE", "/topics/{topic}", self.delete, query=()),
            HttpRoute("GET", "/topics/{topic}/configs", self.topic_configs, query=()),
            HttpRoute("PATCH", "/topics/{topic}/configs", self.alter_topic_configs, query=()),
        ]

    async def cluster(self, request: HttpRequest) -> HttpResponse:
        caller = self._calls.caller(request)
        answer = await self._calls.ask(DescribeClusterRequest(), DescribeClusterResponse, caller)
        check(answer.error_code, answer.error_message)
        brokers = [
            {"id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack} for each in answer.brokers
        ]
        return await json_response(
            {"cluster_id": answer.cluster_id, "controller_id": answer.controller_id, "brokers": brokers}
        )

    # -- topics ------------------------------------------------------------

    async def topics(self, request: HttpRequest) -> HttpResponse:
        answer = await self._metadata(None, self._calls.caller(request))
        topics = sorted(answer.topics, key=lambda each: each.name or "")
        shown = await finished_in_background(in_slices(_topic, (each for each in topics if not each.error_code)))
        return await json_response({"topics": shown})

    async def topic(self, request: HttpRequest) -> HttpResponse:
        name = request.path_values["topic"]
        described = (await self._metadata(name, self._calls.caller(request))).topics[0]
        check(described.error_code, None if described.error_code != 3 else f"There is no topic {name[:250]}.")
        partitions = sorted(described.partitions, key=lambda each: each.partition_index)
        shown = await finished_in_background(in_slices(_partition, partitions))
        return await json_response({"name": described.name, "internal": described.is_internal, "partitions": shown})

    async def _metadata(self, topic: str | None, caller: HttpCaller) -> MetadataResponse:
        wanted = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return await self._calls.ask(request, MetadataResponse, caller, version=METADATA_VERSION)

    async def create(self, request: HttpRequest) -> HttpResponse:
        fields = await fields_of(request)
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
        _check_quota(created.error_code, created.error_message, answer.throttle_time_ms)
        where = (("Location", f"/topics/{created.name}"),)
        shown = {
            "name": created.name,
            "partitions": created.num_partitions,
            "replication_factor": created.replication_factor,
        }
        return await json_response(shown, status=201, headers=where)

    async def delete(self, request: HttpRequest) -> HttpResponse:
        asked = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=request.path_values["topic"])],
            topic_names=[request.path_values["topic"]],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await self._calls.ask(asked, DeleteTopicsResponse, self._calls.caller(request))
        _check_quota(answer.responses[0].error_code, answer.responses[0].error_message, answer.throttle_time_ms)
        return HttpResponse(status=204)

    async def add_partitions(self, request: HttpRequest) -> HttpResponse:
        """How many partitions the topic is to have: more than it has."""
        fields = await fields_of(request)
        count = fields.integer("partitions", least=1, most=INT_MAX)
        fields.refuse_others()
        topic = CreatePartitionsTopic(name=request.path_values["topic"], count=count, assignments=None)
        asked = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await self._calls.ask(asked, CreatePartitionsResponse, self._calls.caller(request))
        _check_quota(answer.results[0].error_code, answer.results[0].error_message, answer.throttle_time_ms)
        return HttpResponse(status=204)

    # -- settings ----------------------------------------------------------

    async def topic_configs(self, request: HttpRequest) -> HttpResponse:
        return await self._configs(request, TOPIC_RESOURCE, request.path_values["topic"])

    async def alter_topic_configs(self, request: HttpRequest) -> HttpResponse:
        return await self._alter_configs(request, TOPIC_RESOURCE, request.path_values["topic"])

    async def broker_configs(self, request: HttpRequest) -> HttpResponse:
        """Asked of the broker itself: only it knows its own."""
        broker = self._broker(request)
        return await self._configs(request, BROKER_RESOURCE, str(broker), node_id=broker)

    async def alter_broker_configs(self, request: HttpRequest) -> HttpResponse:
        return await self._alter_configs(request, BROKER_RESOURCE, str(self._broker(request)))

    def _broker(self, request: HttpRequest) -> int:
        broker = path_integer(request, "broker")
        if broker not in self._brokers():
            raise Problem(404, "BROKER_ID_NOT_REGISTERED", f"There is no broker {broker}, or it is fenced.")
        return broker

    async def _configs(self, request: HttpRequest, kind: int, name: str, *, node_id: int = -1) -> HttpResponse:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        asked = DescribeConfigsRequest(resources=[resource])
        answer = await self._calls.ask(asked, DescribeConfigsResponse, self._calls.caller(request), node_id=node_id)
        found = answer.results[0]
        check(found.error_code, found.error_message)
        return await json_response({"configs": {each.name: each.value for each in found.configs}})

    async def _alter_configs(self, request: HttpRequest, kind: int, name: str) -> HttpResponse:
        """A value of null takes the own setting away."""
        fields = await fields_of(request)
        changes: Mapping[str, str | None] = fields.texts("configs", required=True)
        fields.refuse_others()
        configs = [
            AlterableConfig(name=each, config_operation=DELETE if value is None else SET, value=value)
            for each, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        asked = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self._calls.ask(asked, IncrementalAlterConfigsResponse, self._calls.caller(request))
        check(answer.responses[0].error_code, answer.responses[0].error_message)
        return HttpResponse(status=204)


def _topic(topic: MetadataResponseTopic) -> dict[str, object]:
    return {"name": topic.name, "partitions": len(topic.partitions), "internal": topic.is_internal}


def _partition(partition: MetadataResponsePartition) -> dict[str, object]:
    return {
        "partition": partition.partition_index,
        "leader": partition.leader_id,
        "replicas": list(partition.replica_nodes),
        "isr": list(partition.isr_nodes),
    }


def _check_quota(code: int, message: str | None, throttle_time_ms: int) -> None:
    """As `check`; and who has changed too much is told when to come back (KIP-599)."""
    if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        raise Problem.of(code, message, headers=(("Retry-After", str(ceil(throttle_time_ms / 1000) or 1)),))
    check(code, message)
