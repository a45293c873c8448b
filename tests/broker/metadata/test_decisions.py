"""Random histories of a cluster's brokers and partitions: no decision breaks what must always hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

import pytest

from tidemark.broker.config import BrokerConfig, load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata import brokers
from tidemark.broker.metadata.elections import elect, return_to_preferred
from tidemark.broker.metadata.image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
    partition_record,
)
from tidemark.broker.metadata.isr import IsrProposal, alter_isr
from tidemark.broker.metadata.partitions import Election
from tidemark.broker.metadata.reassignment import reassign
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.topics import NewTopic, create_topic

STEPS = 300
BROKERS = range(1, 6)


class Cluster:
    """Brokers with logs that are mere lengths: enough to see whether a leader lacks what was committed."""

    def __init__(self, seed: int, *, unclean_stops: bool, config: BrokerConfig) -> None:
        self.random = Random(seed)
        self.config = config
        self.unclean_stops = unclean_stops
        self.image = Image()
        self.epoch = 0
        self.alive: set[int] = set()
        self.clean: set[int] = set()
        self.ends: dict[tuple[str, int, int], int] = {}  # topic, partition, broker -> log end
        self.committed: dict[tuple[str, int], int] = {}

    # -- what happens ------------------------------------------------------

    def step(self) -> None:
        events = [self.start] * 3 + [self.unfence] * 4 + [self.kill, self.stop, self.create, self.write, self.catch_up]
        events += [self.write, self.catch_up, self.catch_up, self.shrink, self.expand, self.expand]
        events += [self.prefer, self.rebalance, self.reassign, self.cancel, self.unregister]
        self.random.choice(events)()

    def commit(self, records: Iterable[Record]) -> None:
        before, self.image = self.image, self.image.apply(records)
        check(before, self.image, unclean_allowed=self.config.unclean_leader_election_enable)
        for name, index, partition in each(self.image):
            self.check_leader(name, index, partition, old(before, name, index))

    def check_leader(self, name: str, index: int, partition: PartitionImage, was: PartitionImage | None) -> None:
        if partition.leader == NO_LEADER or (was is not None and was.leader_epoch == partition.leader_epoch):
            return
        end = self.ends.setdefault((name, index, partition.leader), 0)
        committed = self.committed.get((name, index), 0)
        if end < committed:
            assert partition.leader_recovery_state == RECOVERING, "a leader lacks what was committed"
            assert self.unclean_stops or self.config.unclean_leader_election_enable
            self.committed[name, index] = end
        for broker in partition.replicas:  # followers drop what the new leader does not have
            self.ends[name, index, broker] = min(self.ends.get((name, index, broker), 0), end)

    def start(self) -> None:
        broker = self.random.choice(BROKERS)
        if broker in self.alive:
            return
        self.alive.add(broker)
        self.epoch += 1
        stopped_cleanly = broker in self.clean
        self.clean.discard(broker)
        if not stopped_cleanly and self.unclean_stops:
            for key, end in self.ends.items():
                if key[2] == broker:
                    self.ends[key] = self.random.randint(0, end)
        registration = BrokerImage(
            broker_id=broker,
            broker_epoch=self.epoch,
            rack=None,
            endpoints={},
            incarnation_id=self.epoch.to_bytes(16, "big"),
        )
        known = broker in self.image.brokers
        self.commit(
            brokers.register(
                self.image, registration, self.config, stopped_cleanly=stopped_cleanly and known, has_session=False
            )
        )

    def unfence(self) -> None:
        for broker in self.random.sample(sorted(self.alive), k=min(1, len(self.alive))):
            if broker in self.image.brokers:
                self.commit(brokers.unfence(self.image, broker, self.config))

    def unregister(self) -> None:
        """A broker is gone for good, as its operator thinks; it may come back, with an empty disk."""
        broker = self.random.choice(BROKERS)
        if broker not in self.alive and broker in self.image.brokers and self.unclean_stops:
            self.clean.discard(broker)
            self.commit(brokers.unregister(self.image, broker, self.config))

    def kill(self) -> None:
        if self.alive:
            broker = self.random.choice(sorted(self.alive))
            self.alive.discard(broker)
            if self.random.random() < 0.8:  # else it is back before the controller notices
                self.commit(brokers.fence(self.image, broker, self.config))

    def stop(self) -> None:
        if self.alive:
            broker = self.random.choice(sorted(self.alive))
            self.commit(brokers.begin_shutdown(self.image, broker, self.config))
            assert not brokers.leads_anything(self.image, broker)
            self.alive.discard(broker)
            self.clean.add(broker)
            self.commit(brokers.fence(self.image, broker, self.config))

    def create(self) -> None:
        number = len(self.image.topics)
        if number < 4:
            new_topic = NewTopic(
                name=f"t{number}",
                topic_id=b"%16d" % number,
                partitions=2,
                replication_factor=self.random.randint(1, 3),
            )
            self.attempt(lambda: create_topic(self.image, new_topic, self.config))

    def write(self) -> None:
        if (found := self.led()) is not None:
            topic, index, partition = found
            self.ends[topic.name, index, partition.leader] = self.end(topic, index, partition.leader) + 1
            self.advance(topic, index, partition)

    def catch_up(self) -> None:
        if (found := self.led()) is not None:
            topic, index, partition = found
            for broker in partition.replicas:
                if broker in self.alive and self.image.is_active(broker) and self.random.random() < 0.7:
                    self.ends[topic.name, index, broker] = self.end(topic, index, partition.leader)
            self.advance(topic, index, partition)

    def advance(self, topic: TopicImage, index: int, partition: PartitionImage) -> None:
        """KIP-966: nothing is committed while too few are in sync."""
        if len(partition.isr) >= min(self.config.min_insync_replicas, len(partition.replicas)):
            mark = min(self.end(topic, index, broker) for broker in partition.isr)
            self.committed[topic.name, index] = max(mark, self.committed.get((topic.name, index), 0))

    def shrink(self) -> None:
        if (found := self.led()) is not None and len(found[2].isr) > 1:
            topic, index, partition = found
            gone = self.random.choice([each for each in partition.isr if each != partition.leader])
            self.alter(topic, index, [each for each in partition.isr if each != gone])

    def expand(self) -> None:
        if (found := self.led()) is not None:
            topic, index, partition = found
            end = self.end(topic, index, partition.leader)
            ready = [
                each for each in partition.replicas if each in partition.isr or self.end(topic, index, each) == end
            ]
            self.alter(topic, index, ready)

    def alter(self, topic: TopicImage, index: int, isr: list[int]) -> None:
        partition = topic.partitions[index]
        proposal = IsrProposal(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=[(each, self.image.brokers[each].broker_epoch) for each in isr if each in self.image.brokers],
            leader_recovery_state=RECOVERED,
        )
        self.one(topic, index, lambda: alter_isr(self.image, topic, proposal, self.config, leader=partition.leader))

    def prefer(self) -> None:
        if (found := self.led()) is not None:
            topic, index, _ = found
            self.one(topic, index, lambda: elect(self.image, topic, index, Election.PREFERRED, self.config))

    def rebalance(self) -> None:
        self.commit(list(return_to_preferred(self.image, self.config, partitions_max=3)))

    def reassign(self) -> None:
        if self.image.topics and len(self.image.brokers) >= 3:
            topic = self.random.choice(list(self.image.topics.values()))
            index = self.random.randrange(len(topic.partitions))
            target = self.random.sample(sorted(self.image.brokers), k=self.random.randint(1, 3))
            self.one(topic, index, lambda: reassign(self.image, topic, index, target, self.config))

    def cancel(self) -> None:
        if self.image.topics:
            topic = self.random.choice(list(self.image.topics.values()))
            index = self.random.randrange(len(topic.partitions))
            self.one(topic, index, lambda: reassign(self.image, topic, index, None, self.config))

    # -- helpers -----------------------------------------------------------

    def led(self) -> tuple[TopicImage, int, PartitionImage] | None:
        found = [
            (topic, index, partition)
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader in self.alive
        ]
        return self.random.choice(found) if found else None

    def end(self, topic: TopicImage, index: int, broker: int) -> int:
        return self.ends.setdefault((topic.name, index, broker), 0)

    def one(self, topic: TopicImage, index: int, decide: object) -> None:
        self.attempt(lambda: [partition_record(topic.topic_id, index, decide())])  # type: ignore[operator]

    def attempt(self, decide: object) -> None:
        try:
            records = decide()  # type: ignore[operator]
        except Refused:
            return
        self.commit(records)


def each(image: Image) -> Iterator[tuple[str, int, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield topic.name, index, partition


def old(image: Image, name: str, index: int) -> PartitionImage | None:
    topic = image.topics.get(name)
    return None if topic is None else topic.partitions[index]


def check(before: Image, after: Image, *, unclean_allowed: bool) -> None:
    for name, index, partition in each(after):
        assert len(set(partition.replicas)) == len(partition.replicas) > 0
        assert set(partition.isr) <= set(partition.replicas)
        assert not set(partition.isr) & set(partition.elr)
        assert set(partition.elr) <= set(partition.replicas)
        assert set(partition.adding) <= set(partition.replicas)
        assert set(partition.removing) <= set(partition.replicas)
        assert partition.leader == NO_LEADER or partition.leader in partition.isr
        assert partition.leader == NO_LEADER or after.is_active(partition.leader)
        assert all(after.is_active(member) for member in partition.isr)
        assert partition.isr or partition.elr or partition.last_known_elr, "nobody is left to wait for"
        assert partition.leader == NO_LEADER or not partition.last_known_elr
        was = old(before, name, index)
        if was is None or was == partition:
            continue
        assert partition.partition_epoch == was.partition_epoch + 1
        assert partition.leader_epoch >= was.leader_epoch
        if partition.leader != was.leader:
            assert partition.leader_epoch == was.leader_epoch + 1


@pytest.mark.parametrize("seed", range(60))
def test_a_leader_always_holds_what_was_committed(seed: int) -> None:
    run(seed, unclean_stops=False)


@pytest.mark.parametrize("seed", range(60))
def test_after_unclean_stops_only_the_last_leader_may_lead_with_less(seed: int) -> None:
    run(seed, unclean_stops=True)


@pytest.mark.parametrize("seed", range(20))
def test_unclean_elections_break_nothing_else(seed: int) -> None:
    cluster = run(seed, unclean_stops=True, unclean=True)
    for _, _, partition in each(cluster.image):
        if any(cluster.image.is_active(replica) for replica in partition.replicas):
            assert partition.leader != NO_LEADER


def run(seed: int, *, unclean_stops: bool, unclean: bool = False) -> Cluster:
    config = load_config(None, {"min.insync.replicas": 2, "unclean.leader.election.enable": unclean})
    cluster = Cluster(seed, unclean_stops=unclean_stops, config=config)
    for _ in range(STEPS):
        cluster.step()
    return cluster


def run_many(*, unclean_stops: bool) -> None:
    for seed in range(200):
        run(seed, unclean_stops=unclean_stops)


def test_planted_an_eligible_leader_that_lost_data_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: forget that a broker stopped uncleanly, and a history shows a leader that lacks records."""
    leave = brokers._leave
    monkeypatch.setattr(
        brokers, "_leave", lambda image, broker_id, config, *, lost_data=(): leave(image, broker_id, config)
    )
    with pytest.raises(AssertionError, match="lacks what was committed"):
        run_many(unclean_stops=True)


def test_planted_a_mark_that_advances_with_too_few_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: Cluster, topic: TopicImage, index: int, partition: PartitionImage) -> None:
        mark = min(self.end(topic, index, broker) for broker in partition.isr)
        self.committed[topic.name, index] = max(mark, self.committed.get((topic.name, index), 0))

    monkeypatch.setattr(Cluster, "advance", advance)
    with pytest.raises(AssertionError, match="lacks what was committed"):
        run_many(unclean_stops=False)


def test_registering_again_as_the_same_incarnation_changes_only_what_the_broker_says_of_itself() -> None:
    config = load_config(None, {})
    wanted = BrokerImage(broker_id=1, broker_epoch=1, rack=None, endpoints={}, incarnation_id=b"a" * 16)
    image = Image().apply(brokers.register(Image(), wanted, config, stopped_cleanly=False, has_session=True))
    image = image.apply(brokers.unfence(image, 1, config))
    assert brokers.amend(image.brokers[1], replace(wanted, fenced=True)) == []
    image = image.apply(brokers.amend(image.brokers[1], replace(wanted, broker_epoch=2, rack="r")))
    assert image.brokers[1] == replace(wanted, broker_epoch=1, rack="r", fenced=False)


def test_another_incarnation_is_refused_while_the_registered_one_is_alive() -> None:
    config = load_config(None, {})
    wanted = BrokerImage(broker_id=1, broker_epoch=1, rack=None, endpoints={}, incarnation_id=b"a" * 16)
    image = Image().apply(brokers.register(Image(), wanted, config, stopped_cleanly=False, has_session=True))
    image = image.apply(brokers.unfence(image, 1, config))
    another = replace(wanted, broker_epoch=3, incarnation_id=b"b" * 16)
    with pytest.raises(Refused, match="registered and alive"):
        list(brokers.register(image, another, config, stopped_cleanly=False, has_session=True))
