"""What the controller decides about brokers: which are registered, fenced, shutting down.

A fenced broker leads nothing and is in no in-sync set; every change of a broker's state carries the changes of its
partitions with it, in one entry of the log. There may be tens of thousands of them: they are found one by one, as the
caller asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    NO_LEADER,
    TOPIC_RESOURCE,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
    broker_record,
    partition_record,
)
from tidemark.broker.metadata.min_isr import MIN_INSYNC_REPLICAS
from tidemark.broker.metadata.partitions import Circumstances, Election, revise
from tidemark.broker.metadata.records import BrokerStateRecord, PartitionRecord, Record, UnregisterBrokerRecord
from tidemark.protocol.errors import ErrorCode

UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """What a topic's settings say about its elections."""

    min_isr: int
    unclean_allowed: bool


def topic_rules(image: Image, name: str, config: BrokerConfig) -> TopicRules:
    """The topic's own settings, else the cluster's, else the controller's."""
    layers = (image.config_of(TOPIC_RESOURCE, name), image.config_of(BROKER_RESOURCE, CLUSTER_DEFAULT))
    min_isr = _first_set(layers, MIN_INSYNC_REPLICAS)
    unclean = _first_set(layers, UNCLEAN_LEADER_ELECTION)
    return TopicRules(
        min_isr=config.min_insync_replicas if min_isr is None else int(min_isr),
        unclean_allowed=config.unclean_leader_election_enable if unclean is None else unclean.lower() == "true",
    )


def _first_set(layers: Iterable[Mapping[str, str]], name: str) -> str | None:
    return next((layer[name] for layer in layers if name in layer), None)


def register(
    image: Image, wanted: BrokerImage, config: BrokerConfig, *, stopped_cleanly: bool, has_session: bool
) -> Iterator[Record]:
    """A broker has started (`wanted` has its new epoch). It is fenced until it has caught up with the metadata."""
    known = image.brokers.get(wanted.broker_id)
    if known is not None and not known.fenced and has_session:
        raise Refused(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker with the id {wanted.broker_id} is registered and alive.",
        )
    registered = broker_record(replace(wanted, fenced=True))
    yield registered
    after = image.apply([registered])
    # Also of a broker that was unregistered and comes back: its log is not known, and it may still be eligible.
    lost_data = () if stopped_cleanly else (wanted.broker_id,)
    yield from _leave(after, wanted.broker_id, config, lost_data=lost_data)


def amend(known: BrokerImage, wanted: BrokerImage) -> list[Record]:
    """The same incarnation of a broker registers again: only what it says of itself may have changed."""
    after = replace(
        wanted,
        broker_epoch=known.broker_epoch,
        fenced=known.fenced,
        in_controlled_shutdown=known.in_controlled_shutdown,
    )
    return [] if after == known else [broker_record(after)]


def fence(image: Image, broker_id: int, config: BrokerConfig) -> Iterator[Record]:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return
    state = _state(broker, fenced=True, in_controlled_shutdown=broker.in_controlled_shutdown)
    yield state
    yield from _leave(image.apply([state]), broker_id, config)


def unfence(image: Image, broker_id: int, config: BrokerConfig) -> Iterator[Record]:
    """It has caught up: partitions without a leader may have found one."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.fenced:
        return
    state = _state(broker, fenced=False, in_controlled_shutdown=broker.in_controlled_shutdown)
    yield state
    yield from _return(image.apply([state]), broker_id, config)


def begin_shutdown(image: Image, broker_id: int, config: BrokerConfig) -> Iterator[Record]:
    """Controlled shutdown: others lead before it goes."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.in_controlled_shutdown:
        return
    state = _state(broker, fenced=broker.fenced, in_controlled_shutdown=True)
    yield state
    yield from _leave(image.apply([state]), broker_id, config)


def unregister(image: Image, broker_id: int, config: BrokerConfig) -> Iterator[Record]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker_id}.")
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    yield gone
    yield from _leave(image.apply([gone]), broker_id, config)


def leads_anything(image: Image, broker_id: int) -> bool:
    return any(each.leader == broker_id for topic in image.topics.values() for each in topic.partitions)


def _state(broker: BrokerImage, *, fenced: bool, in_controlled_shutdown: bool) -> BrokerStateRecord:
    return BrokerStateRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def _leave(image: Image, broker_id: int, config: BrokerConfig, *, lost_data: tuple[int, ...] = ()) -> Iterator[Record]:
    """It is active no more: out of every in-sync set, and of every lead."""

    def change(partition: PartitionImage, circumstances: Circumstances) -> PartitionImage:
        isr = [each for each in partition.isr if each != broker_id]
        return revise(partition, circumstances, isr=isr)

    return each_partition(
        image,
        config,
        lost_data=lost_data,
        concerns=lambda each: (
            broker_id in each.isr or each.leader == broker_id or (bool(lost_data) and broker_id in each.elr)
        ),
        change=change,
    )


def _return(image: Image, broker_id: int, config: BrokerConfig) -> Iterator[Record]:
    return each_partition(
        image, config, concerns=lambda each: each.leader == NO_LEADER and broker_id in each.replicas, change=revise
    )


def each_partition(
    image: Image,
    config: BrokerConfig,
    *,
    concerns: Callable[[PartitionImage], bool],
    change: Callable[[PartitionImage, Circumstances], PartitionImage],
    election: Election = Election.ONLINE,
    lost_data: tuple[int, ...] = (),
) -> Iterator[PartitionRecord]:
    """The records of all partitions that a change concerns and that it does change."""
    for topic in image.topics.values():
        circumstances: Circumstances | None = None
        for index, partition in enumerate(topic.partitions):
            if not concerns(partition):
                continue
            if circumstances is None:
                circumstances = circumstances_of(image, topic, config, election=election, lost_data=lost_data)
            changed = change(partition, circumstances)
            if changed is not partition:
                yield partition_record(topic.topic_id, index, changed)


def circumstances_of(
    image: Image,
    topic: TopicImage,
    config: BrokerConfig,
    *,
    election: Election = Election.ONLINE,
    lost_data: tuple[int, ...] = (),
) -> Circumstances:
    rules = topic_rules(image, topic.name, config)
    return Circumstances(
        is_active=image.is_active,
        is_online=image.is_online,
        min_isr=rules.min_isr,
        unclean_allowed=rules.unclean_allowed,
        election=election,
        lost_data=lost_data,
    )
