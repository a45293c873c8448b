"""Consumer instances over HTTP: made in a group, subscribed, polled, committed and deleted.

An instance lives on the node that made it, whose number begins its id; another node sends its client there. One that is
not used for a while leaves its group and is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.owners import Owner, Owners
from tidemark.broker.http.addresses import Addresses
from tidemark.broker.http.calls import Calls
from tidemark.broker.http.consumer_instance import RESETS, ConsumerInstance, ConsumerOptions
from tidemark.broker.http.consuming import BYTES_DEFAULT, BYTES_MAX, WAIT_MS_MAX
from tidemark.broker.http.decoding import FORMATS_DEFAULT, FORMATS_READ, ISOLATION, Wanted
from tidemark.broker.http.fetching import Fetching, TopicPartition
from tidemark.broker.http.group_member import Subscription
from tidemark.broker.http.groups import OFFSETS_MAX, place_of
from tidemark.broker.http.inputs import Fields, fail, fields_of, query_integer
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.http.standing import Standing
from tidemark.broker.metadata.store import MetadataStore
from tidemark.environment import monotonic, random_bytes

ID_BYTES: Final = 16
IDLE_MS_LEAST, IDLE_MS_MOST = 1_000, 3_600_000
TOPICS_MAX: Final = 1_000
PATTERN_CHARS_MAX: Final = 1_000
LEAVE_SECONDS_MAX: Final = 3.0
CONSUMER: Final = "/groups/{group}/consumers/{consumer}"
NO_STORE: Final = (("Cache-Control", "no-store"),)


class Consumers:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        calls: Calls,
        leaders: Leaders,
        fetching: Fetching,
        addresses: Addresses,
        quotas: HttpQuotas,
        store: MetadataStore,
    ) -> None:
        self._node_id = config.node_id
        self._instances_max = config.http_consumers_max
        self._idle_ms = config.http_consumer_idle_ms
        self._calls = calls
        self._leaders = leaders
        self._fetching = fetching
        self._addresses = addresses
        self._quotas = quotas
        self._store = store
        self._instances: dict[str, ConsumerInstance] = {}
        self._owners: Owners[ConsumerInstance] = Owners()
        self._leaving: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("POST", "/groups/{group}/consumers", self.create_consumer, query=()),
            HttpRoute("GET", CONSUMER, self.consumer, query=()),
            HttpRoute("DELETE", CONSUMER, self.delete_consumer, query=()),
            HttpRoute("PUT", f"{CONSUMER}/subscription", self.subscribe, query=()),
            HttpRoute("GET", f"{CONSUMER}/records", self.poll, query=("wait_ms", "max_bytes"), has_head=False),
            HttpRoute("POST", f"{CONSUMER}/offsets", self.commit, query=()),
            HttpRoute("PUT", f"{CONSUMER}/positions", self.seek, query=()),
        ]

    # -- life --------------------------------------------------------------

    async def create_consumer(self, request: HttpRequest) -> HttpResponse:
        options = self._options(await fields_of(request))
        group = request.path_values["group"]
        caller = self._calls.caller(request)
        await self._leaders.coordinator_of(group, caller)  # may this client, in this group?
        if self._is_closed:
            raise Problem(503, "BROKER_NOT_AVAILABLE", "This node is stopping.")
        owner = self._owners.of(caller)
        self._make_room(owner)
        consumer_id = f"{self._node_id}-{random_bytes(ID_BYTES).hex()}"
        instance = self._instances[consumer_id] = ConsumerInstance(
            group,
            consumer_id,
            caller,
            options,
            calls=self._calls,
            leaders=self._leaders,
            fetching=self._fetching,
            quotas=self._quotas,
            store=self._store,
        )
        self._owners.add(owner, instance)
        self._expire_later(instance, options.idle_ms / 1000)
        url = f"{self._addresses.own_base(request)}{request.path}/{consumer_id}"
        return await json_response({"id": consumer_id, "url": url}, status=201, headers=(("Location", url),))

    def _make_room(self, owner: Owner[ConsumerInstance]) -> None:
        """For one more of this owner: if there is none, whoever has most gives up the one that was not used for
        longest. Raises Problem."""
        if len(self._instances) < self._instances_max:
            return
        most = self._owners.with_most(owner)
        if most is None or most is owner:
            told = f"This node has {self._instances_max} consumers already (http.consumers.max)."
            raise Problem(429, "GROUP_MAX_SIZE_REACHED", told, headers=(("Retry-After", "10"),))
        self._expel(next(iter(most.items)))

    def _forget(self, instance: ConsumerInstance) -> None:
        if self._instances.pop(instance.consumer_id, None) is not None:
            self._owners.remove(self._owners.of(instance.caller), instance)

    def _expel(self, instance: ConsumerInstance) -> None:
        self._forget(instance)
        leaving = asyncio.ensure_future(instance.member.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _options(self, fields: Fields) -> ConsumerOptions:
        options = ConsumerOptions(
            wanted=Wanted(
                formats={
                    name: fields.choice(f"{name}_format", FORMATS_READ, default=default)
                    for name, default in FORMATS_DEFAULT.items()
                },
                isolation=ISOLATION.index(fields.choice("isolation", ISOLATION, default=ISOLATION[0])),
                names_topic=True,
            ),
            auto_offset_reset=fields.choice("auto_offset_reset", tuple(RESETS), default="earliest"),
            auto_commit=fields.boolean("auto_commit", default=False),
            idle_ms=fields.integer("idle_ms", default=self._idle_ms, least=IDLE_MS_LEAST, most=IDLE_MS_MOST),
        )
        fields.refuse_others()
        return options

    def _expire_later(self, instance: ConsumerInstance, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._expire, instance)

    def _expire(self, instance: ConsumerInstance) -> None:
        if self._instances.get(instance.consumer_id) is not instance:
            return
        idle_seconds = instance.options.idle_ms / 1000
        left = instance.used_at + idle_seconds - monotonic()
        if instance.in_use or left > 0:
            self._expire_later(instance, left if left > 0 else idle_seconds)
            return
        self._expel(instance)

    async def close(self) -> None:
        """All leave their groups, so that others need not wait for their sessions to end."""
        self._is_closed = True
        instances, self._instances = self._instances, {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                leaving = [each.member.leave() for each in instances.values()]
                await asyncio.gather(*leaving, *self._leaving, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _used(self, request: HttpRequest) -> AsyncIterator[ConsumerInstance]:
        """The instance that a request is for, which does not expire meanwhile. Raises Problem."""
        instance = self._find(request)
        instance.in_use += 1
        try:
            yield instance
        finally:
            instance.in_use -= 1
            instance.used_at = monotonic()
            if instance.consumer_id in self._instances:
                self._owners.of(instance.caller).items.move_to_end(instance)

    def _find(self, request: HttpRequest) -> ConsumerInstance:
        consumer_id = request.path_values["consumer"]
        found = self._instances.get(consumer_id)
        # Another's is as good as none: who has no right to it does not learn that it is there.
        if (
            found is not None
            and found.group == request.path_values["group"]
            and found.caller.principal == request.principal
        ):
            return found
        made_by = re.match(r"([0-9]{1,9})-", consumer_id)
        if made_by is not None and int(made_by[1]) != self._node_id:
            self._addresses.redirect(request, int(made_by[1]))
        raise Problem(404, "UNKNOWN_MEMBER_ID", "There is no such consumer here; or it was not used for too long.")

    # -- use ---------------------------------------------------------------

    async def consumer(self, request: HttpRequest) -> HttpResponse:
        async with self._used(request) as instance:
            member = instance.member
            subscription = member.subscription
            shown: dict[str, Any] = {
                "id": instance.consumer_id,
                "group": instance.group,
                "topics": [] if subscription is None else list(subscription.topics),
                "topic_pattern": None if subscription is None else subscription.pattern,
                "assignment": [
                    {"topic": topic, "partition": partition, "position": instance.positions.get((topic, partition))}
                    for topic, partition in sorted(member.assigned)
                ],
            }
            return await json_response(shown)

    async def delete_consumer(self, request: HttpRequest) -> HttpResponse:
        async with self._used(request) as instance:
            self._forget(instance)
            await instance.member.leave()
        return HttpResponse(status=204)

    async def subscribe(self, request: HttpRequest) -> HttpResponse:
        async with self._used(request) as instance:
            await instance.member.subscribe(_subscription(await fields_of(request)))
        return HttpResponse(status=204)

    async def poll(self, request: HttpRequest) -> HttpResponse:
        wait_ms = query_integer(request, "wait_ms", default=0, least=0, most=WAIT_MS_MAX)
        limit_bytes = query_integer(request, "max_bytes", default=BYTES_DEFAULT, least=1, most=BYTES_MAX)
        request.ends_with_client = True  # or the records that come now would go to nobody
        async with self._used(request) as instance:
            self._quotas.admit_fetch(instance.caller)
            standing = Standing(request, instance.caller, self._leaders)
            records = await instance.poll(standing, wait_ms=wait_ms, limit_bytes=limit_bytes)
        body = f'{{"records":[{",".join(records)}]}}'
        request.holder.release(len(body))  # at least what the records held; the connection counts it from here on
        return HttpResponse(body=body.encode(errors="replace"), headers=NO_STORE)

    async def commit(self, request: HttpRequest) -> HttpResponse:
        """Of everything that was given; or of the offsets in the body: those to go on from."""
        fields = await fields_of(request)
        wishes = fields.listing("offsets") if fields.has("offsets") else None
        fields.refuse_others()
        async with self._used(request) as instance:
            offsets = None if wishes is None else await self._places(wishes, "offsets", instance)
            committed = await instance.commit(offsets)
        shown = [{"topic": topic, "partition": index, "offset": at} for (topic, index), at in committed.items()]
        return await json_response({"offsets": shown})

    async def seek(self, request: HttpRequest) -> HttpResponse:
        fields = await fields_of(request)
        wishes = fields.listing("positions")
        fields.refuse_others()
        async with self._used(request) as instance:
            instance.seek(await self._places(wishes, "positions", instance))
        return HttpResponse(status=204)

    async def _places(self, wishes: list[object], name: str, instance: ConsumerInstance) -> dict[TopicPartition, int]:
        if not 0 < len(wishes) <= OFFSETS_MAX:
            raise fail(f"body.{name}: it must have 1 to {OFFSETS_MAX} entries.")
        found = {}
        for number, wish in enumerate(wishes):
            fields = Fields(wish, where=f"{name}[{number}]")
            topic, partition, offset = await place_of(fields, self._leaders, self._fetching, instance.caller)
            found[topic, partition] = offset
        return found


def _subscription(fields: Fields) -> Subscription:
    topics = fields.listing("topics")
    pattern = fields.text("topic_pattern") if fields.has("topic_pattern") else None
    fields.refuse_others()
    names = tuple(each for each in topics if isinstance(each, str) and each)
    if len(names) < len(topics) or len(names) > TOPICS_MAX:
        raise fail(f"body.topics: it must have up to {TOPICS_MAX} names.")
    if bool(names) == bool(pattern) or len(pattern or "") > PATTERN_CHARS_MAX:
        raise fail(f"body: it must have either topics, or a topic_pattern of up to {PATTERN_CHARS_MAX} characters.")
    return Subscription(topics=names, pattern=pattern)
