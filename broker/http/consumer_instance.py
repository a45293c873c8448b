"""A consumer that an HTTP client made: a member of its group, and where it stands in each partition.

Records are given from the committed offset on (or where `auto_offset_reset` says), and positions move when an answer is
ready to leave: a poll whose client went away meanwhile gives the same records to the next one. What was given is
committed when the client says so; or, with `auto_commit`, by the next poll, by leaving, and before a partition goes to
another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.decoding import ANSWER_CHARS_MAX, Decoded, Wanted
from tidemark.broker.http.fetching import EARLIEST, LATEST, Fetching, TopicPartition
from tidemark.broker.http.group_member import GroupMember
from tidemark.broker.http.held_answers import Holder
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.standing import Standing
from tidemark.broker.metadata.store import MetadataStore
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import PartitionData

RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}
RETRY_SECONDS: Final = 0.1
ENDING_SECONDS: Final = 0.2
# What passes by itself: the next heartbeat or the next leader mends it.
PASSING: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
PASSING_NAMES: Final = frozenset(("UNSTABLE_OFFSET_COMMIT", "STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    wanted: Wanted
    auto_offset_reset: str = "earliest"
    auto_commit: bool = False
    idle_ms: int


class ConsumerInstance:
    def __init__(
        self,
        group: str,
        consumer_id: str,
        caller: HttpCaller,
        options: ConsumerOptions,
        *,
        calls: Calls,
        leaders: Leaders,
        fetching: Fetching,
        quotas: HttpQuotas,
        store: MetadataStore,
    ) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.caller = caller
        self.options = options
        self.used_at = monotonic()
        self.in_use = 0  # requests of its client that are under way
        self.member = GroupMember(
            group, consumer_id, caller, calls=calls, leaders=leaders, store=store, revoke=self._give_up, lose=self._lose
        )
        self.positions: dict[TopicPartition, int] = {}  # in the order in which partitions are read next
        self.given: dict[TopicPartition, int] = {}  # after what the client got and did not commit
        self._fetching = fetching
        self._quotas = quotas
        self._polling = asyncio.Lock()

    # -- reading -----------------------------------------------------------

    async def poll(self, standing: Standing, *, wait_ms: int, limit_bytes: int) -> list[str]:
        """Records as JSON, of whichever partitions have some. Raises Problem."""
        if self.member.subscription is None:
            raise Problem(409, "INVALID_REQUEST", "This consumer is not subscribed to anything yet.")
        await self._begin_poll()
        try:
            if self.options.auto_commit:
                with contextlib.suppress(Problem):
                    await self.commit()
            return await self._poll(standing, monotonic() + wait_ms / 1000, limit_bytes)
        finally:
            self._polling.release()

    async def _begin_poll(self) -> None:
        """A poll whose client is gone takes a moment to end; that client may well be the one that asks again."""
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                await self._polling.acquire()
        except TimeoutError:
            raise Problem(409, "INVALID_REQUEST", "Another poll of this consumer is under way.") from None

    async def _poll(self, standing: Standing, until: float, limit_bytes: int) -> list[str]:
        while True:
            if self.member.failure is not None:
                raise self.member.failure
            changed = self.member.changed
            records = await self._poll_once(standing, until, limit_bytes)
            left = until - monotonic()
            if records or left <= 0:
                return records
            if not self._readable():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, RETRY_SECONDS) if self.member.assigned else left):
                        await changed.wait()

    def _readable(self) -> dict[int, list[TopicPartition]]:
        """What is assigned and has a position, by the broker that leads it."""
        return self._fetching.by_leader(each for each in self.positions if each in self.member.assigned)

    async def _poll_once(self, standing: Standing, until: float, limit_bytes: int) -> list[str]:
        try:
            await self._find_positions()
        except Problem as problem:
            if problem.status != 503 and problem.error not in PASSING_NAMES:
                raise
            await asyncio.sleep(min(max(until - monotonic(), 0), RETRY_SECONDS))
            return []
        led = self._readable()
        if not led:
            return []
        asked = {each: self.positions[each] for places in led.values() for each in places}
        found, chars_left = [], ANSWER_CHARS_MAX
        for place, data in (await self._read(led, asked, until, limit_bytes)).items():
            looked_at = await self._looked_at(place, asked[place], data, chars_max=chars_left, holder=standing.holder)
            found.append((place, asked[place], looked_at))
            chars_left -= 0 if looked_at is None else looked_at.chars
            if chars_left <= 0:
                break  # the others are read next time
        await standing.check(*{place[0] for place, _, each in found if each})
        # From here to the answer nothing is awaited: either the client gets it, or no position has moved.
        return [record for place, offset, each in found if each for record in self._taken(place, offset, each)]

    async def _read(
        self,
        led: Mapping[int, list[TopicPartition]],
        asked: Mapping[TopicPartition, int],
        until: float,
        limit_bytes: int,
    ) -> dict[TopicPartition, PartitionData]:
        """From all leaders at once, until the first of them has something, or the assignment changes."""
        limit_bytes = self._quotas.fetch_bytes_max(self.caller, max(limit_bytes // len(led), 1))
        reads = [
            asyncio.ensure_future(
                self._fetching.read_from(
                    leader,
                    {each: asked[each] for each in places},
                    self.caller,
                    limit_bytes=limit_bytes,
                    wait_ms=max(int((until - monotonic()) * 1000), 0),
                    isolation=self.options.wanted.isolation,
                )
            )
            for leader, places in led.items()
        ]
        changed = asyncio.ensure_future(self.member.changed.wait())
        try:
            await asyncio.wait([*reads, changed], return_when=asyncio.FIRST_COMPLETED)
            return await self._outcome(reads)
        finally:
            for each in (*reads, changed):
                each.cancel()
            await asyncio.gather(*reads, changed, return_exceptions=True)

    async def _outcome(
        self, reads: Sequence[asyncio.Future[dict[TopicPartition, PartitionData]]]
    ) -> dict[TopicPartition, PartitionData]:
        found: dict[TopicPartition, PartitionData] = {}
        for each in reads:
            if not each.done():
                continue
            error = each.exception()
            if error is None:
                found |= each.result()
            elif isinstance(error, Problem) and error.status == 503:
                await asyncio.sleep(RETRY_SECONDS)  # its node is gone, and another will lead
            else:
                raise error
        return found

    async def _looked_at(
        self, place: TopicPartition, offset: int, data: PartitionData, *, chars_max: int, holder: Holder
    ) -> Decoded | None:
        """The records of a partition. None: there are none for now."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset(place)
            return None
        if data.error_code in PASSING:
            await asyncio.sleep(RETRY_SECONDS)
            return None
        if data.error_code:
            raise Problem.of(data.error_code)
        if not data.records:
            return None
        found = await self._fetching.decoder.decoded(
            data, *place, offset, self.options.wanted, chars_max=chars_max, holder=holder
        )
        self._quotas.fetched(self.caller, found.size_bytes)
        return found

    def _taken(self, place: TopicPartition, offset: int, found: Decoded) -> list[str]:
        """The records, behind which the position moves; none if they are another's, or it was moved, meanwhile."""
        if place not in self.member.assigned or self.positions.get(place) != offset:
            return []
        del self.positions[place]  # to the end: the others are read before it next time
        self.positions[place] = self.given[place] = found.next_offset
        return found.records

    async def _find_positions(self) -> None:
        """Of partitions that are new here: where the group has come to, or where to begin without that."""
        new = sorted(self.member.assigned - self.positions.keys())
        if not new:
            return
        for place, offset in (await self.member.committed(new)).items():
            if offset < 0:
                await self._reset(place)
            elif place in self.member.assigned:
                self.positions.setdefault(place, offset)

    async def _reset(self, place: TopicPartition) -> None:
        timestamp = RESETS[self.options.auto_offset_reset]
        if timestamp is None:
            told = f"{place[0]}-{place[1]} has no offset to go on from, and auto_offset_reset is none."
            raise Problem.of(ErrorCode.OFFSET_OUT_OF_RANGE, told)
        offset = await self._fetching.offset_at(*place, timestamp, self.caller)
        if place in self.member.assigned:
            self.positions[place] = offset

    # -- committing --------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> dict[TopicPartition, int]:
        """What was given so far, or what the client says. Returns what was committed."""
        wanted = dict(self.given if offsets is None else offsets)
        self._check_assigned(wanted)
        if wanted:
            await self.member.commit(wanted)
            self._committed(wanted)
        return wanted

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        self._check_assigned(positions)
        for place, offset in positions.items():
            self.positions[place] = offset
            self.given.pop(place, None)

    def _check_assigned(self, places: Iterable[TopicPartition]) -> None:
        for topic, partition in places:
            if (topic, partition) not in self.member.assigned:
                told = f"{topic}-{partition} is not assigned to this consumer, or not any more."
                raise Problem.of(ErrorCode.STALE_MEMBER_EPOCH, told)

    def _committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            if self.given.get(place, -1) <= offset:
                self.given.pop(place, None)

    async def _give_up(self, partitions: set[TopicPartition]) -> None:
        """They go to another member, or this one leaves."""
        last = {place: self.given[place] for place in sorted(partitions) if place in self.given}
        self._lose(partitions)
        if last and self.options.auto_commit:
            await self.member.commit_now(last)

    def _lose(self, partitions: set[TopicPartition]) -> None:
        """They may be another's by now, who goes on from what is committed: so does this one, if it gets them again."""
        for place in partitions:
            self.given.pop(place, None)
            self.positions.pop(place, None)
