"""Groups over HTTP: who is in them, what they have committed, how far behind they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemark.broker.core.sliced_work import finished_in_background, in_slices
from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.fetching import EARLIEST, LATEST, Fetching, TopicPartition
from tidemark.broker.http.inputs import Fields, fail, fields_of
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.problems import Problem, check
from tidemark.broker.http.router import HttpRoute
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from tidemark.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidemark.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidemark.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

OFFSETS_VERSION: Final = 9  # of OffsetFetch and OffsetCommit: the last that names topics
OFFSETS_MAX: Final = 1_000  # in one request
PARTITION_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1
SPECIAL: Final = {"earliest": EARLIEST, "latest": LATEST}


class Groups:
    def __init__(self, calls: Calls, leaders: Leaders, fetching: Fetching, *, brokers: Callable[[], list[int]]) -> None:
        """`brokers`: the ids of all that are registered and not fenced."""
        self._calls = calls
        self._leaders = leaders
        self._fetching = fetching
        self._brokers = brokers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/groups", self.groups, query=()),
            HttpRoute("GET", "/groups/{group}", self.group, query=()),
            HttpRoute("DELETE", "/groups/{group}", self.delete_group, query=()),
            HttpRoute("GET", "/groups/{group}/offsets", self.offsets, query=()),
            HttpRoute("PUT", "/groups/{group}/offsets", self.reset_offsets, query=()),
        ]

    async def groups(self, request: HttpRequest) -> HttpResponse:
        """Of all coordinators: each knows its own. Where one does not answer, what the others know is told, and who it
        is, as `ListGroupsResult` of Kafka's Admin has it."""
        caller = self._calls.caller(request)
        brokers = self._brokers()
        answers = await asyncio.gather(*(self._groups_of(node_id, caller) for node_id in brokers))
        failed = {node_id: each for node_id, each in zip(brokers, answers, strict=True) if isinstance(each, Problem)}
        if failed and len(failed) == len(answers):
            raise next(iter(failed.values()))
        # While a coordinator moves, two may know the same group.
        found = {each["group"]: each for some in answers if not isinstance(some, Problem) for each in some}
        errors = [{"broker": node_id, "error": each.error, "detail": each.detail} for node_id, each in failed.items()]
        shown = {"groups": [found[name] for name in sorted(found)]} | ({"errors": errors} if errors else {})
        return await json_response(shown, status=207 if errors else 200)

    async def _groups_of(self, node_id: int, caller: HttpCaller) -> list[dict[str, Any]] | Problem:
        try:
            answer = await self._calls.ask(ListGroupsRequest(), ListGroupsResponse, caller, node_id=node_id)
            check(answer.error_code)
        except Problem as problem:
            return problem
        return [
            {"group": each.group_id, "state": each.group_state, "type": each.group_type, "coordinator": node_id}
            for each in answer.groups
        ]

    async def group(self, request: HttpRequest) -> HttpResponse:
        """Its state and members, in either protocol."""
        group, caller = request.path_values["group"], self._calls.caller(request)
        node_id = await self._leaders.coordinator_of(group, caller)
        asked = ConsumerGroupDescribeRequest(group_ids=[group])
        answer = await self._calls.ask(asked, ConsumerGroupDescribeResponse, caller, node_id=node_id)
        found = answer.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return await self._classic_group(group, caller, node_id)
        check(found.error_code, found.error_message)
        members = await finished_in_background(in_slices(_consumer_member, found.members))
        return await _described(group, found.group_state, "consumer", node_id, members)

    async def _classic_group(self, group: str, caller: HttpCaller, node_id: int) -> HttpResponse:
        asked = DescribeGroupsRequest(groups=[group])
        answer = await self._calls.ask(asked, DescribeGroupsResponse, caller, node_id=node_id)
        found = answer.groups[0]
        check(found.error_code, found.error_message)
        members = await finished_in_background(in_slices(_member, found.members))
        return await _described(group, found.group_state, "classic", node_id, members)

    async def delete_group(self, request: HttpRequest) -> HttpResponse:
        group, caller = request.path_values["group"], self._calls.caller(request)
        node_id = await self._leaders.coordinator_of(group, caller)
        asked = DeleteGroupsRequest(groups_names=[group])
        answer = await self._calls.ask(asked, DeleteGroupsResponse, caller, node_id=node_id)
        check(answer.results[0].error_code)
        return HttpResponse(status=204)

    # -- offsets -----------------------------------------------------------

    async def offsets(self, request: HttpRequest) -> HttpResponse:
        """What a group has committed, and how far behind it is."""
        group, caller = request.path_values["group"], self._calls.caller(request)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=False)
        node_id = await self._leaders.coordinator_of(group, caller)
        answer = await self._calls.ask(asked, OffsetFetchResponse, caller, version=OFFSETS_VERSION, node_id=node_id)
        check(answer.groups[0].error_code)
        committed = {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.groups[0].topics
            for each in topic.partitions
        }
        ends = await self._fetching.ends(list(committed), caller)
        rows = await finished_in_background(in_slices(lambda each: _row(*each, ends), committed.items()))
        return await json_response({"group": group, "offsets": rows, "lag": sum(row["lag"] or 0 for row in rows)})

    async def reset_offsets(self, request: HttpRequest) -> HttpResponse:
        """Of a group without members: for partitions, an offset, or `earliest`, `latest`, or a time."""
        group, caller = request.path_values["group"], self._calls.caller(request)
        fields = await fields_of(request)
        wishes = fields.listing("offsets")
        fields.refuse_others()
        if not 0 < len(wishes) <= OFFSETS_MAX:
            raise fail(f"body.offsets: it must have 1 to {OFFSETS_MAX} entries.")
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for number, wish in enumerate(wishes):
            topic, partition, offset = await place_of(
                Fields(wish, where=f"offsets[{number}]"), self._leaders, self._fetching, caller
            )
            asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            topics.setdefault(topic, []).append(asked)
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        node_id = await self._leaders.coordinator_of(group, caller)
        answer = await self._calls.ask(commit, OffsetCommitResponse, caller, version=OFFSETS_VERSION, node_id=node_id)
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                has_members = each.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                check(each.error_code, "The group has members: its offsets are theirs to set." if has_members else None)
        return HttpResponse(status=204)


async def place_of(wish: Fields, leaders: Leaders, fetching: Fetching, caller: HttpCaller) -> tuple[str, int, int]:
    """Topic, partition and offset of a wish: for an offset, or `to` earliest or latest, or of a `timestamp` on."""
    topic = wish.text("topic")
    partition = wish.integer("partition", least=0, most=PARTITION_MAX)
    offset = wish.optional_integer("offset", least=0, most=OFFSET_MAX)
    timestamp = wish.optional_integer("timestamp", least=0, most=OFFSET_MAX)
    special = wish.choice("to", tuple(SPECIAL), default="") if wish.has("to") else None
    wish.refuse_others()
    if [offset, timestamp, special].count(None) != 2:
        raise fail(f"{wish.where}: it must have one of offset, timestamp and to.")
    if partition >= await leaders.partition_count(topic, caller):
        await leaders.refuse_partition(topic, partition, caller)
    if offset is None:
        wanted = SPECIAL[special] if timestamp is None else timestamp  # type: ignore[index]
        offset = await fetching.offset_from(topic, partition, wanted, caller)
    return topic, partition, offset


def _row(place: TopicPartition, offset: int, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    end = ends.get(place)
    topic, partition = place
    lag = None if end is None else max(end - offset, 0)
    return {"topic": topic, "partition": partition, "offset": offset, "end_offset": end, "lag": lag}


def _member(each: DescribedGroupMember | Member) -> dict[str, Any]:
    return {"member_id": each.member_id, "client_id": each.client_id, "client_host": each.client_host}


def _consumer_member(each: Member) -> dict[str, Any]:
    owned = [
        {"topic": topic.topic_name, "partitions": list(topic.partitions)} for topic in each.assignment.topic_partitions
    ]
    return {**_member(each), "assignment": owned}


async def _described(group: str, state: str, kind: str, node_id: int, members: list[dict[str, Any]]) -> HttpResponse:
    shown = {"group": group, "state": state, "type": kind, "coordinator": node_id, "members": members}
    return await json_response(shown)
