"""Creating topics: by request, and on first use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.internal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, offsets_topic, transactions_topic
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metadata.topics import (
    Charge,
    NewTopic,
    check_partitions_of_request,
    create_topics,
    free_of_charge,
)
from tidemark.environment import random_bytes
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.cluster.forwarding import Forwarding
    from tidemark.protocol.messages.create_topics import CreatableTopic


OPENED_SECONDS_MAX: Final = 5.0  # how long an answer waits for the logs of a new topic to be open on this node


class TopicCreation:
    def __init__(
        self,
        store: MetadataStore,
        settings: DynamicConfig,
        *,
        opened: Callable[[], Awaitable[None]],
        forwarding: Forwarding | None = None,
    ) -> None:
        """`opened` returns when all logs that this node is to have are open. `forwarding`: to the controller, where
        that may be another node."""
        self._store = store
        self._settings = settings
        self._opened = opened
        self._forwarding = forwarding

    async def create_automatically(self, name: str) -> None:
        """For a client that names a topic that does not exist; another client may do the same at once."""
        for refusal in (await self.create_all_automatically([name])).values():
            raise refusal

    async def create_all_automatically(
        self, names: Sequence[str], charge: Charge = free_of_charge
    ) -> dict[str, Refused]:
        """As one request, and thus with its limit. Those that cannot be created, with their reasons. Each broker holds
        its clients to their quotas of this by itself (`charge`): the controller does not know for whom it is."""
        check_partitions_of_request(len(names))
        image = self._store.image
        topics = [self._new_topic(image, name) for name in names]
        for topic in topics:
            charge(topic.partitions if topic.partitions > 0 else self._settings.current.num_partitions)
        if self._forwarding is not None and not self._store.is_controller:
            refused = await self._ask_controller(self._forwarding, topics)
            await self._wait_until_opened()
        else:
            refused, _ = await self.create(topics)
        return {name: why for name, why in refused.items() if why.code != ErrorCode.TOPIC_ALREADY_EXISTS}

    async def _ask_controller(self, forwarding: Forwarding, topics: Sequence[NewTopic]) -> dict[str, Refused]:
        from tidemark.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=self._settings.current.request_timeout_ms
        )
        response = await forwarding.ask(request, CreateTopicsResponse, version=7)
        return {
            result.name: Refused(
                ErrorCode(result.error_code), result.error_message or "The controller refused the topic."
            )
            for result in response.topics
            if result.error_code != ErrorCode.NONE
        }

    def _new_topic(self, image: Image, name: str) -> NewTopic:
        if name == OFFSETS_TOPIC:
            return offsets_topic(image, self._settings.current, topic_id=new_topic_id())
        if name == TRANSACTIONS_TOPIC:
            return transactions_topic(image, self._settings.current, topic_id=new_topic_id())
        return NewTopic(name=name, topic_id=new_topic_id(), partitions=-1, replication_factor=-1)

    async def create(
        self, topics: Sequence[NewTopic], charge: Charge = free_of_charge
    ) -> tuple[dict[str, Refused], Image]:
        """Create all that can be, in one commit; the others with their reasons. `charge`: see `create_topics`."""
        refused: dict[str, Refused] = {}

        def decide(image: Image) -> Job[list[Record]]:
            records, refusals = yield from create_topics(image, topics, self._settings.current, charge)
            refused.update(refusals)
            return records

        image = await self._store.change(decide)
        await self._wait_until_opened()
        return refused, image

    async def _wait_until_opened(self) -> None:
        """A client that has the answer can use the new topic at once, at least through this node."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPENED_SECONDS_MAX):
                await self._opened()

    async def check(
        self, topics: Sequence[NewTopic], charge: Charge = free_of_charge
    ) -> tuple[dict[str, Refused], Image]:
        """As `create`, but nothing is created: the image is what would be."""
        before = self._store.image
        records, refused = await finished(create_topics(before, topics, self._settings.current, charge))
        return refused, await finished(before.apply_in_slices(records))


def _creatable(topic: NewTopic) -> CreatableTopic:
    from tidemark.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def new_topic_id() -> bytes:
    """A random UUID (version 4). Kafka keeps clear of ids that begin with a dash in their base64 form, and so do we."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # 62 is '-' in URL-safe base64
            return bytes(raw)
