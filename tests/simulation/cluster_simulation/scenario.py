"""One run: a cluster, clients and faults, all from one seed; then everything is healed, and judged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation import compacted, faults, layouts, lost_metadata, members, memory
from cluster_simulation.administrator import Administrator, Relaxer, TopicMaker, create_topic
from cluster_simulation.checks import check_history
from cluster_simulation.clients import Producer, Reader, SeldomProducer, TransactionalProducer
from cluster_simulation.compacted import KeyedProducer, check_compacted
from cluster_simulation.fault import Fault
from cluster_simulation.files_check import check_files
from cluster_simulation.guest import GuestKeeper
from cluster_simulation.history import Anomaly, History, Place
from cluster_simulation.hostile import Hostile
from cluster_simulation.invariants import Invariants
from cluster_simulation.members import ClassicMember, ConsumerMember
from cluster_simulation.quotas import QuotaChanger
from cluster_simulation.transform import OUTPUT, Transformer
from cluster_simulation.voters import VoterChanger
from tidemark.broker.metadata.image import Image
from tidemark.raft.driver import Driver
from tidemark.simulation import Cluster, OutOfTime, WorldStuck
from tidemark.simulation.client import KafkaClient

CHECK_EVERY_EVENTS: Final = 50
RECOVER_SECONDS_MAX: Final = 90.0
STOP_SECONDS_MAX: Final = 60.0
HOUSEKEEPING_SECONDS: Final = 2.0  # until what logs remember is looked at again
QUIET_SECONDS: Final = HOUSEKEEPING_SECONDS + 1.0  # a reader's request waits for less than a second
FAR_SECONDS: Final = 1000.0
GROUPS: Final = tuple(faults.KINDS)
WORKLOADS: Final = (
    "classic",
    "consumer",
    "transform",
    "admin",
    "compacted",
    "hostile",
    "pairs",
    "voters",
    "quotas",
    "topics",
    "guest",
)  # beside plain clients
HUNG_UP: Final = "warning closing the connection from"
CUT_OFF: Final = "this node is cut off from the others, and cannot name the leaders"  # clients should ask another
PAIRS: Final = "pairs"  # a topic with two replicas
SNAPSHOT_AFTER_BYTES: Final = (1 << 20, 8000, 2000)  # of the quorum's journal
WORKLOAD_CHANCE: Final = 0.35
WITHOUT_ONE: Final = ("kill", "isolate", "one_way", "cut_pair", "pause", "disk_hang", "disk_full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    nodes: int = 3
    groups: tuple[str, ...] = GROUPS
    workloads: tuple[str, ...] | None = None  # None: drawn from the seed
    mode: str = ""  # of faults; empty: drawn from the seed
    layout: str = ""  # of disks; likewise
    without_one: str = ""  # what befalls one node when all is well again; empty: drawn from the seed
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
    workloads: tuple[str, ...] = ()
    recovery_seconds: float = 0.0
    timeline: list[tuple[float, str, str]] = field(default_factory=list)


Make = Callable[[str, KafkaClient, Random], Any]


class Scenario:
    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        random = Random(f"scenario {seed}")
        self.mode = options.mode or faults.draw_mode(random, options.groups)
        self.durable = self.mode == faults.SYNCED or (self.mode == faults.UNLUCKY and random.random() < 0.5)
        self.layout = random.choice(layouts.LAYOUTS) if not options.layout else options.layout
        self.random = random
        self.partitions = random.choice((1, 2, 3))
        self.snapshot_after_bytes = Random(f"snapshots {seed}").choice(SNAPSHOT_AFTER_BYTES)
        self.workloads = self._workloads()
        self.settings = self._settings(random)
        self.faults = faults.draw(
            Random(f"faults {seed}"),
            nodes=options.nodes,
            seconds=options.seconds,
            groups=options.groups,
            mode=self.mode,
            layout=self.layout,
        )
        if "voters" in self.workloads:  # with two voters left, none of them may lose what it knows
            self.faults = [each for each in self.faults if each.kind != "replaced_metadata"]
        if "pairs" not in self.workloads:  # nothing would come of it but a long wait
            self.faults = [each for each in self.faults if each.kind != "damaged_restarts"]
        self.may_relax = self.mode != faults.UNLUCKY  # alone in sync, a replica must keep what it has
        self.history = History()
        self.recovery_seconds = 0.0
        self.outputs: list[Place] = []
        self.keyed: list[Place] = []
        self.paired: list[Place] = []
        self.clients: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}
        self.trace_to: Any = None
        self.hang_ups: list[str] = []

    def _workloads(self) -> tuple[str, ...]:
        random = Random(f"workloads {self.seed}")
        drawn = tuple(each for each in WORKLOADS if random.random() < WORKLOAD_CHANCE)
        return drawn if self.options.workloads is None else self.options.workloads

    def _settings(self, random: Random) -> dict[str, str]:
        settings = {
            **members.SETTINGS,
            **memory.settings(self.seed),
            "log.cleaner.backoff.ms": "700",
            "replica.lag.time.max.ms": str(random.choice((3000, 10_000))),
            "broker.session.timeout.ms": str(random.choice((6000, 9000))),
            "log.segment.bytes": str(1 << 20),
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": f"{HOUSEKEEPING_SECONDS * 1000:.0f}",
            "log.initial.task.delay.ms": "700",  # no seed would live to see its default
        }
        if self.durable:
            settings["log.flush.interval.messages"] = "1"
        return settings

    def _settings_of(self, node_id: int) -> dict[str, str]:
        return {**self.settings, **layouts.settings(node_id, self.layout)}

    def run(self, listener: Any = None) -> Outcome:
        outcome = Outcome(self.seed)
        began = time.process_time()
        snapshots = patch.dict(Driver.__init__.__kwdefaults__, snapshot_after_bytes=self.snapshot_after_bytes)
        with snapshots, Cluster(self.seed, nodes=self.options.nodes, settings=self._settings_of) as cluster:
            cluster.world.listeners.append(self._note_hang_up)
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
        outcome.workloads = (*self.workloads, self.mode, f"disks-{self.layout}")
        outcome.recovery_seconds = self.recovery_seconds
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
        self._check_liveness(cluster, "after all was well")
        may_miss_one = not {"admin", "voters", "guest"} & {*self.workloads}  # they change how many can be missed
        if may_miss_one and (self.random.random() < 0.5 or self.options.without_one):
            self._live_without_one(cluster)
        self._stop_clients(cluster)
        self._await_in_sync(cluster)
        cluster.run(QUIET_SECONDS)
        memory.check_forgotten(cluster)
        self._judge(cluster, places)
        self._raise_failures(cluster)
        self._check_files(cluster)

    def _live_without_one(self, cluster: Cluster) -> None:
        """A majority is up and connected: what was in sync goes on."""
        self._await_in_sync(cluster)
        node = self.random.randint(1, self.options.nodes)
        if self.random.random() < 0.5:
            node = next(each.node_id for each in cluster.brokers.values() if each.node._store.is_controller)  # type: ignore[union-attr]
        kind = self.options.without_one or self.random.choice(WITHOUT_ONE)
        faults.begin(cluster, Fault(kind=kind, node=node, at=0.0, seconds=FAR_SECONDS, amount=0.5))
        # With two replicas nothing is acknowledged without one of them, unless somebody lowers min.insync.replicas.
        stuck = frozenset() if self.may_relax else frozenset(("pairs-0",))
        self._check_liveness(cluster, f"without node-{node}", not_counted=stuck)
        faults.heal(cluster)
        if kind == "pause":
            cluster.brokers[node].kill()
        cluster.brokers[node].start()

    def _check_files(self, cluster: Cluster) -> None:
        """They stop cleanly, one after the other, and what they leave is sound."""
        cluster.world.watch(None)
        image = next(iter(cluster.brokers.values())).node._store.image  # type: ignore[union-attr]
        for broker in cluster.brokers.values():
            broker.may_start = False
            broker.stop()
            cluster.run_until(lambda broker=broker: not broker.is_running, seconds_max=STOP_SECONDS_MAX)  # type: ignore[misc]
            if broker.failure is not None:
                raise Anomaly(f"{broker.name} did not stop: {broker.failure!r}")
        check_files(cluster, image)

    def _watch(self, cluster: Cluster, invariants: Invariants) -> None:
        may_end = {each.node for each in self.faults if each.kind in faults.ENDS_A_NODE}

        def look() -> None:
            invariants.check()
            if self.hang_ups:
                raise Anomaly(self.hang_ups[0])
            for broker in cluster.brokers.values():
                if broker.failure is not None and broker.node_id not in may_end:
                    raise Anomaly(f"{broker.name} ends, and no fault is a reason for it: {broker.failure!r}")
            for name, task in self.tasks.items():
                if task.done() and not task.cancelled() and task.exception() is not None:
                    error = task.exception()
                    if isinstance(error, Anomaly):
                        raise error
                    raise Anomaly(f"{name}: {type(error).__name__}: {error}") from error

        cluster.world.watch(look, every_events=CHECK_EVERY_EVENTS)

    def _note_hang_up(self, _at: float, who: str, what: str) -> None:
        """No broker hangs up because of what a well-behaved client, or another broker, has sent."""
        if what.startswith(HUNG_UP) and not what.startswith(f"{HUNG_UP} hostile") and not what.endswith(CUT_OFF):
            self.hang_ups.append(f"{who}: {what}")

    def _create_topics(self, cluster: Cluster) -> list[Place]:
        topics = dict.fromkeys(("orders", "payments")[: self.random.choice((1, 2))], self.partitions)
        extra = {OUTPUT: 2} if "transform" in self.workloads else {}
        keyed = {compacted.TOPIC: 1} if "compacted" in self.workloads else {}
        paired = {PAIRS: 1} if "pairs" in self.workloads else {}

        async def create() -> None:
            client = KafkaClient(cluster.bootstrap, client_id="admin")
            for name, count in {**topics, **extra, **keyed, **paired}.items():
                configs = compacted.CONFIGS if name in keyed else None
                replicas = 2 if name in paired else 3
                await create_topic(client, name, partitions=count, replicas=replicas, configs=configs)

        cluster.call(create())
        self.outputs = [(name, index) for name, count in extra.items() for index in range(count)]
        self.keyed = [(name, 0) for name in keyed]
        self.paired = [(name, 0) for name in paired]
        return [(topic, index) for topic, count in topics.items() for index in range(count)]

    def _start_clients(self, cluster: Cluster, places: list[Place]) -> None:
        makes = {**self._plain_clients(places), **self._more_clients(places)}
        if "guest" in self.workloads:
            makes["guest-0"] = lambda name, client, random: GuestKeeper(
                name, client, self.history, random, places, cluster=cluster, nodes=self.options.nodes
            )
        if "quotas" in self.workloads:
            slowed = [*makes]
            makes["quotas-0"] = lambda name, client, random: QuotaChanger(name, client, self.history, random, slowed)
        for name, make in makes.items():
            if name not in self.options.without_clients:
                client = KafkaClient(cluster.bootstrap, client_id=name)
                self.clients[name] = make(name, client, Random(f"{name} {self.seed}"))
                self.tasks[name] = cluster.new_client(name).spawn(self.clients[name].run(), name=name)

    def _plain_clients(self, places: list[Place]) -> dict[str, Make]:
        history, makes = self.history, dict[str, Make]()
        for number in range(self.random.randint(1, 3)):
            makes[f"producer-{number}"] = lambda name, client, random: Producer(name, client, history, random, places)
        for number in range(self.random.randint(0, 2)):
            makes[f"transactional-{number}"] = lambda name, client, random: TransactionalProducer(
                name, client, history, random, places
            )
        for place in places + self.outputs + self.paired:
            makes[f"reader-{place[0]}-{place[1]}"] = lambda _, client, random, place=place: Reader(  # type: ignore[misc]
                client, history, place, committed_only=random.random() < 0.5
            )
        return makes

    def _more_clients(self, places: list[Place]) -> dict[str, Make]:
        history, nodes, makes = self.history, self.options.nodes, dict[str, Make]()
        topics = sorted({topic for topic, _ in places})
        random = Random(f"more clients {self.seed}")
        for kind, member in (("classic", ClassicMember), ("consumer", ConsumerMember)):
            if kind in self.workloads:
                for number in range(random.choice((2, 3))):
                    makes[f"{kind}-{number}"] = lambda name, client, random, member=member: member(  # type: ignore[misc]
                        name, client, history, random, topics
                    )
        if "transform" in self.workloads:
            for number in range(2):
                makes[f"transform-{number}"] = lambda name, client, random: Transformer(
                    name, client, history, random, topics[:1], self.outputs
                )
        if "compacted" in self.workloads:
            makes["keyed-0"] = lambda name, client, random: KeyedProducer(name, client, history, random, [])
        if self.paired:
            makes["pairs-0"] = lambda name, client, random: SeldomProducer(name, client, history, random, self.paired)
            if self.may_relax:
                makes["relaxer-0"] = lambda name, client, random: Relaxer(
                    name, client, history, random, self.paired, nodes=nodes, may_relax=True
                )
        if "admin" in self.workloads:
            makes["admin-0"] = lambda name, client, random: Administrator(
                name, client, history, random, places, nodes=nodes, may_relax=self.may_relax
            )
        if "topics" in self.workloads:
            makes["topics-0"] = lambda name, client, random: TopicMaker(
                name, client, history, random, places, nodes=nodes, may_relax=False
            )
        if "voters" in self.workloads:
            makes["voters-0"] = lambda name, client, random: VoterChanger(name, client, history, random, nodes=nodes)
        if "hostile" in self.workloads:
            makes["hostile-0"] = lambda name, client, random: Hostile(
                name, client, history, random, places, nodes=nodes
            )
        return makes

    def _heal(self, cluster: Cluster) -> None:
        last = max((each.ends_at for each in self.faults), default=0.0)
        cluster.run(0.5 + max(0.0, last - self.options.seconds))  # what is under way ends: cuts, pauses, restarts
        faults.heal(cluster)
        for broker in cluster.brokers.values():
            broker.start()

    def _check_liveness(self, cluster: Cluster, when: str, *, not_counted: frozenset[str] = frozenset()) -> None:
        """Every producer gets on."""
        producers = [name for name, each in self.clients.items() if isinstance(each, Producer)]
        producers = [name for name in producers if name not in not_counted]
        producers += sorted({each.group for each in self.clients.values() if isinstance(each, Transformer)})
        healed = cluster.world.now

        def all_get_on() -> bool:
            return all(self.history.last_ack.get(name, -1.0) > healed for name in producers)

        try:
            cluster.run_until(all_get_on, seconds_max=RECOVER_SECONDS_MAX)
        except OutOfTime:
            stuck = [name for name in producers if self.history.last_ack.get(name, -1.0) <= healed]
            raise Anomaly(f"{', '.join(stuck)} got nothing acknowledged for {RECOVER_SECONDS_MAX:g} s {when}") from None
        self.recovery_seconds = max(self.recovery_seconds, cluster.world.now - healed)

    def _stop_clients(self, cluster: Cluster) -> None:
        for each in self.clients.values():
            each.stopping = True
        try:
            cluster.run_until(lambda: all(task.done() for task in self.tasks.values()), seconds_max=RECOVER_SECONDS_MAX)
        except OutOfTime:
            stuck = [name for name, task in self.tasks.items() if not task.done()]
            raise Anomaly(f"{', '.join(stuck)} could not finish for {RECOVER_SECONDS_MAX:g} s") from None

    def _await_in_sync(self, cluster: Cluster) -> None:
        seen: Image | None = None
        missing: list[str] = []

        def has_missing() -> bool:
            """Asked before every event: an image that was looked at does not change."""
            nonlocal seen, missing
            image = next(iter(cluster.brokers.values())).node._store.image  # type: ignore[union-attr]
            if image is not seen:
                seen, missing = image, _not_in_sync(image)
            return bool(missing)

        try:
            cluster.run_until(
                lambda: (
                    all(each.is_ready for each in cluster.brokers.values())
                    and lost_metadata.operators_are_done(cluster)
                    and not has_missing()
                ),
                seconds_max=RECOVER_SECONDS_MAX,
            )
        except OutOfTime:
            down = [each.name for each in cluster.brokers.values() if not each.is_ready]
            raise Anomaly(f"not in sync after {RECOVER_SECONDS_MAX:g} s: {missing}; not ready: {down}") from None

    def _judge(self, cluster: Cluster, places: Sequence[Place]) -> None:
        places = [*places, *self.outputs, *self.paired]
        everything, committed = self._read_all(cluster, places, False), self._read_all(cluster, places, True)
        is_unclean = any(each.kind in faults.UNCLEAN or each.kind in faults.KINDS["power"] for each in self.faults)
        if is_unclean:  # as in Kafka, where a log begins is written every now and then
            self.history.deleted.clear()
        check_history(self.history, everything, committed)
        for place, records in self._read_all(cluster, self.keyed, False).items():
            check_compacted(self.history, place, records)

    def _read_all(
        self, cluster: Cluster, places: Sequence[Place], committed_only: bool
    ) -> dict[Place, dict[int, bytes]]:
        found: dict[Place, dict[int, bytes]] = {}

        async def read(place: Place) -> None:
            seen = History(sent=self.history.sent, decided=self.history.decided)
            seen.may_be_deleted = self.history.may_be_deleted
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


def _not_in_sync(image: Image) -> list[str]:
    return [
        f"{name}-{index} {sorted(partition.isr)} of {sorted(partition.replicas)}, leader {partition.leader}"
        for name, topic in sorted(image.topics.items())
        for index, partition in enumerate(topic.partitions)
        if partition.leader < 0 or set(partition.isr) != set(partition.replicas)
    ]


def run(seed: int, options: Options | None = None, listener: Any = None) -> Outcome:
    return Scenario(seed, options or Options()).run(listener)
