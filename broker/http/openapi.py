"""`/openapi.json`: the document that describes this interface, made from the routes that there are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NamedTuple

from tidemark.broker.http.router import HttpRoute
from tidemark.broker.http.schemas import COMPONENTS, HEADER_VALUES, PATH_VALUES, QUERY_VALUES, ref
from tidemark.broker.http.streaming import EVENTS, NDJSON

JSON: Final = "application/json"
PROBLEM: Final = {
    "description": "What went wrong (RFC 9457), with Kafka's name of the error.",
    "content": {"application/problem+json": {"schema": ref("Problem")}},
}


class Operation(NamedTuple):
    name: str
    summary: str
    answers: dict[int, str | None]  # the schema of each status that is no problem
    body: str | None = None
    headers: tuple[str, ...] = ()
    types: tuple[str, ...] = (JSON,)  # of answers


OPERATIONS: Final = {
    "GET /livez": Operation("live", "Does this process answer?", {200: "Health"}),
    "GET /readyz": Operation("ready", "Should this node be sent clients?", {200: "Health", 503: "Health"}),
    "GET /metrics": Operation(
        "metrics",
        "Metrics, for Prometheus",
        {200: None},
        types=("text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text"),
    ),
    "GET /openapi.json": Operation("openapi", "This document", {200: None}),
    "POST /topics/{topic}/records": Operation(
        "produce",
        "Append one record, or many",
        {200: "Offsets", 204: None, 207: "Offsets", 307: None},
        body="NewRecords",
        headers=("Idempotency-Key",),
    ),
    "GET /topics/{topic}/partitions/{partition}/records": Operation(
        "fetch", "Read a partition, with a long poll", {200: "Records", 307: None}
    ),
    "GET /topics/{topic}/stream": Operation(
        "stream",
        "All partitions as they come: one JSON record a line, or server-sent events",
        {200: None},
        headers=("Last-Event-ID",),
        types=(NDJSON, EVENTS),
    ),
    "GET /cluster": Operation("cluster", "Brokers and controller", {200: "Cluster"}),
    "GET /brokers/{broker}/configs": Operation("broker_configs", "The settings of a broker", {200: "Configs"}),
    "PATCH /brokers/{broker}/configs": Operation(
        "alter_broker_configs", "Change settings of a broker; null: take them away", {204: None}, body="NewConfigs"
    ),
    "GET /topics": Operation("topics", "All topics", {200: "Topics"}),
    "POST /topics": Operation("create_topic", "Create a topic", {201: "CreatedTopic"}, body="NewTopic"),
    "GET /topics/{topic}": Operation("topic", "A topic's partitions", {200: "Topic"}),
    "PATCH /topics/{topic}": Operation("add_partitions", "Add partitions", {204: None}, body="PartitionCount"),
    "DELETE /topics/{topic}": Operation("delete_topic", "Delete a topic", {204: None}),
    "GET /topics/{topic}/configs": Operation("topic_configs", "The settings of a topic", {200: "Configs"}),
    "PATCH /topics/{topic}/configs": Operation(
        "alter_topic_configs", "Change settings of a topic; null: take them away", {204: None}, body="NewConfigs"
    ),
    "GET /groups": Operation("groups", "All groups", {200: "Groups", 207: "Groups"}),
    "GET /groups/{group}": Operation("group", "A group's state and members", {200: "Group"}),
    "DELETE /groups/{group}": Operation("delete_group", "Delete a group without members", {204: None}),
    "GET /groups/{group}/offsets": Operation("offsets", "Committed offsets, and lag", {200: "GroupOffsets"}),
    "PUT /groups/{group}/offsets": Operation(
        "reset_offsets", "Set the offsets of a group without members", {204: None}, body="NewOffsets"
    ),
    "POST /groups/{group}/consumers": Operation(
        "create_consumer", "Make a consumer in a group", {201: "CreatedConsumer"}, body="NewConsumer"
    ),
    "GET /groups/{group}/consumers/{consumer}": Operation(
        "consumer", "What a consumer is subscribed to and assigned", {200: "Consumer", 307: None}
    ),
    "DELETE /groups/{group}/consumers/{consumer}": Operation(
        "delete_consumer", "Leave the group", {204: None, 307: None}
    ),
    "PUT /groups/{group}/consumers/{consumer}/subscription": Operation(
        "subscribe", "Subscribe to topics, and join the group", {204: None, 307: None}, body="Subscription"
    ),
    "GET /groups/{group}/consumers/{consumer}/records": Operation(
        "poll", "The next records, with a long poll", {200: "PolledRecords", 307: None}
    ),
    "POST /groups/{group}/consumers/{consumer}/offsets": Operation(
        "commit",
        "Commit what was given, or the offsets in the body",
        {200: "CommittedOffsets", 307: None},
        body="CommitOffsets",
    ),
    "PUT /groups/{group}/consumers/{consumer}/positions": Operation(
        "seek", "Go on elsewhere", {204: None, 307: None}, body="NewPositions"
    ),
}

DESCRIPTIONS: Final = {
    200: "Done.",
    201: "Made.",
    204: "Done; there is nothing to tell.",
    207: "Only a part: some records could not be appended, or some brokers did not answer.",
    307: "Another node has it.",
    503: "Not ready.",
}


def document(routes: Iterable[HttpRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemark over HTTP",
            "version": _installed(),
            "description": "Records, topics and groups of a Kafka-compatible broker, as JSON.",
        },
        "paths": paths,
        "security": [{}, {"basic": []}, {"bearer": []}],
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _installed() -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version("tidemark")
    return "unknown"


def _operation(route: HttpRoute) -> dict[str, Any]:
    operation = OPERATIONS[f"{route.method} {route.path}"]
    parameters = [
        *(_parameter(name, "path", PATH_VALUES[name]) for name in re.findall(r"\{(\w+)\}", route.path)),
        *(_parameter(name, "query", QUERY_VALUES[name]) for name in route.query or ()),
        *(_parameter(name, "header", HEADER_VALUES[name]) for name in operation.headers),
    ]
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(status, schema, operation) for status, schema in operation.answers.items()},
            "default": PROBLEM,
        },
    }
    if route.is_open:
        made["security"] = [{}]
    if operation.body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": ref(operation.body)}}}
    return made


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {key: value for key, value in schema.items() if key != "description"}
    made: dict[str, Any] = {"name": name, "in": place, "required": place == "path", "schema": described}
    return made | ({"description": schema["description"]} if "description" in schema else {})


def _answer(status: int, schema: str | None, operation: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {"description": DESCRIPTIONS[status]}
    if status == 307:
        return made | {"headers": {"Location": {"schema": {"type": "string"}}}, "content": PROBLEM["content"]}
    if status == 204:
        return made
    content: dict[str, Any] = {} if schema is None else {"schema": ref(schema)}
    return made | {"content": dict.fromkeys(operation.types, content)}
