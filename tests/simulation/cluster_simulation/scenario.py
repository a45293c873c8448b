"""One run: a cluster, clients and faults, all from one seed; then everything is healed, and judged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from cluster_simulation import faults
from cluster_simulation.checks import Invariants, check_history
from cluster_simulation.clients import Producer, Reader, TransactionalProducer
from cluster_simulation.history import Anomaly, History, Place
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.simulation import Cluster, OutOfTime, WorldStuck
from tidemark.simulation.client import KafkaClient

CHECK_EVERY_EVENTS: Final = 50
RECOVER_SECONDS_MAX: Final = 90.0
GROUPS: Final = tuple(faults.KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    nodes: int = 3
    groups: tuple[str, ...] = GROUPS
    seconds: float = 20.0
    without_faults: frozenset[int] = frozenset()  # by their number
    without_clients: frozenset[str] = frozenset()


@dataclass(slots=True)
class Outcome:
    seed: int
    anomaly: str = ""
    digest: str = ""
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    events: int = 0
    acknowledged: int = 0
    requests: int = 0
    transactions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    fault_count: int = 0
    clients: tuple[str, ...] = ()
    timeline: list[tuple[float, str, str]] = field(default_factory=list)


class Scenario:
    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        random = Random(f"scenario {seed}")
        self.durable = random.random() < 0.5
        self.random = random
        self.partitions = random.choice((1, 2, 3))
        self.settings = self._settings(random)
        self.faults = faults.draw(
            Random(f"faults {seed}"),
            nodes=options.nodes,
            seconds=options.seconds,
            groups=options.groups,
            durable=self.durable,
        )
        self.history = History()
        self.clients: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}
        self.trace_to: Any = None

    def _settings(self, random: Random) -> dict[str, str]:
        settings = {
            "replica.lag.time.max.ms": str(random.choice((3000, 10_000))),
            "broker.session.timeout.ms": str(random.choice((6000, 9000))),
            "log.segment.bytes": str(1 << 20),
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "2000",
        }
        if self.durable:
            settings["log.flush.interval.messages"] = "1"
        return settings

    def run(self, listener: Any = None) -> Outcome:
        outcome = Outcome(self.seed)
        began = time.process_time()
        with Cluster(self.seed, nodes=self.options.nodes, settings=self.settings) as cluster:
            if listener is not None:
                cluster.world.listeners.append(listener)
            if self.trace_to is not None:
                cluster.world.trace_to = self.trace_to
            try:
                self._run(cluster)
            except (Anomaly, OutOfTime, WorldStuck) as error:
                outcome.anomaly = f"{type(error).__name__}: {error}"
                cluster.world.note("checker", outcome.anomaly)
            outcome.digest = cluster.world.digest
            outcome.virtual_seconds = cluster.world.now
            outcome.events = cluster.world.events
            outcome.timeline = cluster.world.timeline
        outcome.real_seconds = time.process_time() - began
        outcome.acknowledged, outcome.requests = self.history.acknowledged, self.history.requests
        outcome.transactions = self.history.transactions
        outcome.faults.update(each.kind for at, each in enumerate(self.faults) if at not in self.options.without_faults)
        outcome.fault_count = len(self.faults)
        outcome.clients = tuple(self.clients)
        return outcome

    def _run(self, cluster: Cluster) -> None:
        invariants = Invariants(cluster)
        cluster.start(seconds_max=30)
        self._watch(cluster, invariants)
        places = self._create_topics(cluster)
        self._start_clients(cluster, places)
        start = cluster.world.now
        for number, fault in enumerate(self.faults):
            if number not in self.options.without_faults:
                cluster.world.at(start + fault.at, lambda fault=fault: faults.begin(cluster, fault))  # type: ignore[misc]
        cluster.run(self.options.seconds)
        self._heal(cluster)
        self._check_liveness(cluster)
        self._stop_clients(cluster)
        self._await_in_sync(cluster, places)
        self._judge(cluster, places)
        self._raise_failures(cluster)

    def _watch(self, cluster: Cluster, invariants: Invariants) -> None:
        count = 0

        def after_event() -> None:
            nonlocal count
            count += 1
            if count % CHECK_EVERY_EVENTS == 0:
                invariants.check()
                for name, task in self.tasks.items():
                    if task.done() and not task.cancelled() and task.exception() is not None:
                        error = task.exception()
                        if isinstance(error, Anomaly):
                            raise error
                        raise Anomaly(f"{name}: {type(error).__name__}: {error}") from error

        cluster.world.after_event = after_event

    def _create_topics(self, cluster: Cluster) -> list[Place]:
        topics = ["orders", "payments"][: self.random.choice((1, 2))]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=each, num_partitions=self.partitions, replication_factor=3) for each in topics]
        )

        async def create() -> None:
            client = KafkaClient(cluster.bootstrap, client_id="admin")
            answer = await client.ask_any(request, CreateTopicsResponse, version=5)
            codes = {each.error_code for each in answer.topics}
            if codes - {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                raise Anomaly(f"CreateTopics answers {codes}")

        cluster.call(create())
        return [(topic, partition) for topic in topics for partition in range(self.partitions)]

    def _start_clients(self, cluster: Cluster, places: list[Place]) -> None:
        makes: dict[str, Any] = {}
        for number in range(self.random.randint(1, 3)):
            makes[f"producer-{number}"] = Producer
        for number in range(self.random.randint(0, 2)):
            makes[f"transactional-{number}"] = TransactionalProducer
        for topic, partition in places:
            makes[f"reader-{topic}-{partition}"] = (topic, partition)
        for name, make in makes.items():
            random = Random(f"{name} {self.seed}")
            if name in self.options.without_clients:
                continue
            client = KafkaClient(cluster.bootstrap, client_id=name)
            if isinstance(make, tuple):
                self.clients[name] = Reader(client, self.history, make, committed_only=random.random() < 0.5)
            else:
                self.clients[name] = make(name, client, self.history, random, places)
            self.tasks[name] = cluster.new_client(name).spawn(self.clients[name].run(), name=name)

    def _heal(self, cluster: Cluster) -> None:
        faults.heal(cluster)
        cluster.run(0.5 + faults.SECONDS_MAX)  # what is under way ends: pauses, restarts
        faults.heal(cluster)
        for broker in cluster.brokers.values():
            broker.start()

    def _check_liveness(self, cluster: Cluster) -> None:
        """With everything well again, every producer gets on."""
        producers = [name for name, each in self.clients.items() if isinstance(each, Producer)]
        healed = cluster.world.now

        def all_get_on() -> bool:
            return all(self.history.last_ack.get(name, -1.0) > healed for name in producers)

        try:
            cluster.run_until(all_get_on, seconds_max=RECOVER_SECONDS_MAX)
        except OutOfTime:
            stuck = [name for name in producers if self.history.last_ack.get(name, -1.0) <= healed]
            raise Anomaly(
                f"{', '.join(stuck)} got nothing acknowledged for {RECOVER_SECONDS_MAX:g} s after all was well"
            ) from None

    def _stop_clients(self, cluster: Cluster) -> None:
        for each in self.clients.values():
            each.stopping = True
        try:
            cluster.run_until(lambda: all(task.done() for task in self.tasks.values()), seconds_max=RECOVER_SECONDS_MAX)
        except OutOfTime:
            stuck = [name for name, task in self.tasks.items() if not task.done()]
            raise Anomaly(f"{', '.join(stuck)} could not finish for {RECOVER_SECONDS_MAX:g} s") from None

    def _await_in_sync(self, cluster: Cluster, places: Sequence[Place]) -> None:
        def missing() -> list[str]:
            image = next(iter(cluster.brokers.values())).node._store.image  # type: ignore[union-attr]
            return [
                f"{name}-{index} {sorted(partition.isr)} of {sorted(partition.replicas)}, leader {partition.leader}"
                for name, topic in sorted(image.topics.items())
                for index, partition in enumerate(topic.partitions)
                if partition.leader < 0 or set(partition.isr) != set(partition.replicas)
            ]

        try:
            cluster.run_until(
                lambda: all(each.is_ready for each in cluster.brokers.values()) and not missing(),
                seconds_max=RECOVER_SECONDS_MAX,
            )
        except OutOfTime:
            down = [each.name for each in cluster.brokers.values() if not each.is_ready]
            raise Anomaly(f"not in sync after {RECOVER_SECONDS_MAX:g} s: {missing()}; not ready: {down}") from None

    def _judge(self, cluster: Cluster, places: Sequence[Place]) -> None:
        everything, committed = self._read_all(cluster, places, False), self._read_all(cluster, places, True)
        check_history(self.history, everything, committed)

    def _read_all(
        self, cluster: Cluster, places: Sequence[Place], committed_only: bool
    ) -> dict[Place, dict[int, bytes]]:
        found: dict[Place, dict[int, bytes]] = {}

        async def read(place: Place) -> None:
            seen = History(sent=self.history.sent, decided=self.history.decided)
            client = KafkaClient(cluster.bootstrap, client_id="judge")
            reader = Reader(client, seen, place, committed_only=committed_only)
            while reader.offset < reader.end_seen or reader.end_seen < 0:
                await reader.poll()
            found[place] = seen.read[place]

        for place in places:
            cluster.call(read(place), seconds_max=RECOVER_SECONDS_MAX)
        return found

    def _raise_failures(self, cluster: Cluster) -> None:
        for client in cluster.clients:
            if client.failures:
                raise Anomaly(f"{client.name}: {client.failures[0]}")


def run(seed: int, options: Options | None = None, listener: Any = None) -> Outcome:
    return Scenario(seed, options or Options()).run(listener)
