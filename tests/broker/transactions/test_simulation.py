"""Random histories of transactions on the pure coordinator and the real producer state of partitions, from a seed.

Producers crash, stall and come back as zombies, two with one id; requests, answers and markers are delayed, lost,
repeated and reordered; coordinators fail over and lose what was not committed; partitions change leader and lose what
was not replicated; time-outs strike. A reader with read_committed watches every partition all the while. A failing seed
is printed; `TIDEMARK_SEED=n pytest <this file>` runs it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import pytest
from histories import run_histories

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.records import encode_key, encode_value
from tidemark.broker.replication.partition import check_marker
from tidemark.broker.transactions.records import decode, record_of
from tidemark.broker.transactions.shard import PendingMarkers, TransactionShard
from tidemark.broker.transactions.transaction import (
    CLASSIC,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
)
from tidemark.broker.transactions.transitions import NeedsProducerId, Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import BatchHeader, EndTransaction
from tidemark.storage import StaleCoordinatorEpoch, StorageError
from tidemark.storage.history import note_batch
from tidemark.storage.producers import Producers

HISTORIES = 2400
CHUNKS = 8
TIMEOUT_MS = 500
PARTITIONS = 3
IDS = ("a", "b")
SOLE_ID = "c"  # one producer has this id for itself, and lives on: nothing but a time-out may fence it
CONFIG = BrokerConfig()
TRANSACTIONAL, CONTROL = 0x10, 0x20
RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class Broken(AssertionError):
    """Something happened that must never happen."""


@dataclass(eq=False)
class Story:
    """One transaction as its producer lived it."""

    number: int
    acknowledged: list[tuple[int, int]] = field(default_factory=list)  # (partition, value)
    wants_commit: bool = False
    is_committed: bool = False  # and the producer was told so
    delivered: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Batch:
    header: BatchHeader
    marker: EndTransaction | None
    value: tuple[int, int] | None  # the story, and which of its records
    written: Callable[[bool], None]


class SimPartition:
    """A leader's log and producer state, by the rules that Log and Partition have."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.batches: list[Batch] = []
        self.mark = 0  # the high watermark
        self.producers = Producers()
        self.aborted: list[Any] = []
        self.read_up_to = 0
        self.stable = 0

    def append(
        self, header: BatchHeader, marker: EndTransaction | None, value: Any, written: Callable[[bool], None]
    ) -> None:
        if marker is None:
            if self.producers.check(header) is not None:
                written(True)
                return
        else:
            self.producers.check_marker(header, coordinator_epoch=marker.coordinator_epoch)
        self.batches.append(Batch(header, marker, value, written))
        self._note(len(self.batches) - 1)
        self.world.after(self.replicate, at_most=6)

    def _note(self, offset: int) -> None:
        batch = self.batches[offset]
        aborted = note_batch(self.producers, batch.header, batch.marker, first_offset=offset, last_offset=offset)
        if aborted is not None:
            self.aborted.append(aborted)

    def replicate(self) -> None:
        while self.mark < len(self.batches):
            self.mark += 1
            self.batches[self.mark - 1].written(True)
        self.read()

    def change_leader(self) -> None:
        """The new leader has what was committed, and perhaps some more; it builds its state from its log."""
        keep = self.world.random.randint(self.mark, len(self.batches))
        lost, self.batches = self.batches[keep:], self.batches[:keep]
        self.producers = Producers()
        self.aborted = []
        for offset in range(keep):
            self._note(offset)
        for batch in lost:
            batch.written(False)
        self.replicate()

    def has_open(self, producer: Producer) -> bool:
        state = self.producers.get(producer.producer_id)
        return state is not None and state.epoch == producer.epoch and state.current_txn_first_offset >= 0

    def mark_end(self, marker: EndTransaction, version: int, written: Callable[[bool], None]) -> None:
        check_marker(self.producers.get(marker.producer_id), marker, version=version)
        self.append(
            header(marker.producer_id, marker.producer_epoch, -1, CONTROL | TRANSACTIONAL), marker, None, written
        )

    def read(self) -> None:
        """As a consumer reads: what is stable, without what the list of aborted transactions names."""
        stable = self.producers.last_stable_offset(self.mark)
        if stable < self.stable:
            raise Broken(f"the last stable offset of {self.index} went back from {self.stable} to {stable}")
        self.stable = stable
        aborted = sorted(
            (each for each in self.aborted if each.last_offset >= self.read_up_to and each.first_offset < stable),
            key=lambda each: each.first_offset,
        )
        skipping: set[int] = set()
        for offset in range(self.read_up_to, stable):
            batch = self.batches[offset]
            while aborted and aborted[0].first_offset <= offset:
                skipping.add(aborted.pop(0).producer_id)
            if batch.marker is not None:
                skipping.discard(batch.header.producer_id)
            elif batch.header.producer_id not in skipping:
                self.world.deliver(self.index, batch.value)
        self.read_up_to = stable


def header(producer_id: int, epoch: int, sequence: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(0, 50, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, sequence, 1)


class Coordinator:
    """The shell in miniature: appends, commits later, answers and sends markers only then."""

    def __init__(self, world: World, log: list[Any], epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.log = log
        self.committed = len(log)
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.shard = TransactionShard(config=CONFIG, coordinator_epoch=epoch)
        for key, value in log:
            self.shard.replay(decode(key, value))

    def start(self) -> None:
        list(self.shard.loaded(self.world.now))
        self.send_orders()

    @property
    def is_in_charge(self) -> bool:
        return self.world.coordinator is self

    def finish(self, result: Any, reply: Callable[[Any], None], *, certain: bool = False) -> None:
        if isinstance(result, CoordinatorResult):
            if not certain and self.world.trouble(0.02):
                reply(result.refuse(ErrorCode.NOT_COORDINATOR))
                return
            self.log += [(encode_key(each.key), encode_value(each.value, each.version)) for each in result.records]
            result = self.shard.apply(result)
            self.world.after(self.commit, at_most=8)
        self.send_orders()
        self.when_committed(lambda: reply(result))

    def when_committed(self, action: Callable[[], None]) -> None:
        if self.committed == len(self.log):
            action()
        else:
            self.waiting.append((len(self.log), action))

    def commit(self) -> None:
        if not self.is_in_charge:
            return
        self.committed = len(self.log)
        due, self.waiting = self.waiting, []
        for _, action in due:
            action()

    def send_orders(self) -> None:
        all_pending, self.shard.markers_to_send = self.shard.markers_to_send, []
        if all_pending:
            self.when_committed(
                lambda: [self.send(pending, each) for pending in all_pending for each in parts(pending)]  # type: ignore[arg-type, func-returns-value]
            )

    def send(self, pending: PendingMarkers, each: TopicPartition | None) -> None:
        if each is None:
            self.settled(pending, None)
            return
        # By the classic rules nothing tells a repeated marker from the next one's: such markers are sent once.
        copies = 2 if pending.version >= EPOCH_PER_TRANSACTION and self.world.trouble(0.1) else 1
        for _ in range(copies):
            self.world.after(lambda: self.deliver(pending, each), at_most=25)

    def deliver(self, pending: PendingMarkers, each: TopicPartition) -> None:
        """At the partition's leader, where an old coordinator's markers arrive, too."""

        def written(is_there: bool) -> None:
            if not is_there:
                self.world.after(lambda: self.send(pending, each), at_most=10)
            else:
                self.world.after(lambda: self.settled(pending, each), at_most=10)

        if self.world.trouble(0.05):
            written(False)
            return
        try:
            self.world.partitions[each[1]].mark_end(pending.marker, pending.version, written)
        except StaleCoordinatorEpoch:
            pass
        except StorageError:
            self.settled(pending, each)

    def settled(self, pending: PendingMarkers, each: TopicPartition | None) -> None:
        if not self.is_in_charge or (result := self.shard.marked(pending, each, self.world.now)) is None:
            return
        if self.world.trouble(0.02):  # it cannot be written down now
            self.world.after(lambda: self.settled(pending, each), at_most=10)
        else:
            self.finish(result, lambda _: None, certain=True)


def parts(pending: PendingMarkers) -> list[Any]:
    return sorted(pending.partitions) or [None]


Client = Generator[Callable[[Callable[[Any], None]], None], Any, None]


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1_000
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.pending = count()
        self.ids = count(1000)
        self.stories: list[Story] = []
        self.calm = False
        self.history: list[str] = []
        self.partitions = [SimPartition(self, index) for index in range(PARTITIONS)]
        self.coordinator = Coordinator(self, [worn_out(each, self.random) for each in (*IDS, SOLE_ID)], epoch=0)
        self.timed_out: set[str] = set()
        for _ in range(self.random.randint(2, 5)):
            self.after(self.start_client, at_most=400)
        self.after(self.start_sole_client, at_most=400)

    # -- events ------------------------------------------------------------

    def after(self, action: Callable[[], None], *, at_most: int) -> None:
        heappush(self.events, (self.now + self.random.randint(0, at_most), next(self.pending), action))

    def trouble(self, chance: float) -> bool:
        return not self.calm and self.random.random() < chance

    def run(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.after(self.fail_over, at_most=900)
        for _ in range(self.random.randint(0, 4)):
            self.after(self.random.choice(self.partitions).change_leader, at_most=900)
        for _ in range(self.random.randint(0, 3)):
            self.after(self.time_out, at_most=2000)
        self._drain()
        self.calm = True
        self.now += TIMEOUT_MS * 2
        self.time_out()
        self._drain()

    def _drain(self) -> None:
        for _ in range(20_000):
            if not self.events:
                return
            self.now, _, action = heappop(self.events)
            action()
        raise Broken("it never ends")

    def fail_over(self) -> None:
        old = self.coordinator
        keep = self.random.randint(old.committed, len(old.log))
        self.history.append(f"{self.now} fail over, {len(old.log) - keep} records lost")
        self.coordinator = Coordinator(self, old.log[:keep], old.epoch + 1)
        self.coordinator.start()

    def time_out(self) -> None:
        coordinator = self.coordinator
        for result in filter(None, coordinator.shard.time_out(self.now)):
            self.timed_out.update(record.key.transactional_id for record in result.records)
            coordinator.finish(result, lambda _: None)

    # -- producers ---------------------------------------------------------

    def start_client(self) -> None:
        transactional_id = self.random.choice(IDS)
        version = self.random.choice((CLASSIC, EPOCH_PER_TRANSACTION))
        self._advance(life(self, transactional_id, version), None, version)

    def start_sole_client(self) -> None:
        version = EPOCH_PER_TRANSACTION
        self._advance(life(self, SOLE_ID, version, transactions=8), None, version, is_sole=True)

    def _advance(self, client: Client, answer: Any, version: int, *, is_sole: bool = False) -> None:
        if not is_sole and self.trouble(0.02):
            return  # it crashed
        try:
            request = client.send(answer)
        except StopIteration:
            return
        answered = [False]

        def receive(response: Any) -> None:
            if not answered[0]:
                answered[0] = True
                if is_sole:
                    self.check_not_fenced(request, response)
                at_most = 600 if self.trouble(0.03) else 5
                self.after(lambda: self._advance(client, response, version, is_sole=is_sole), at_most=at_most)

        if self.trouble(0.04):  # the request, or its answer, is lost; or it arrives twice
            fate = self.random.random()
            # By the classic rules nobody can tell an old request from a new one: it must not arrive any later.
            late = 300 if version >= EPOCH_PER_TRANSACTION else 0
            if is_sole and request.__name__ == "initialise":
                late = 0  # a late one takes the id over, from the very producer that sent it
            if fate < 0.6:
                self.after(lambda: request(lambda _: None), at_most=late)
            if fate < 0.3 and late:
                self.after(lambda: request(receive), at_most=60)
            heappush(self.events, (self.now + 200, next(self.pending), lambda: receive(None)))
        else:
            self.after(lambda: request(receive), at_most=5)
        heappush(self.events, (self.now + 250, next(self.pending), lambda: receive(None)))

    def check_not_fenced(self, request: Callable[..., Any], response: Any) -> None:
        code = getattr(response, "error_code", response)
        if request.__name__ != "initialise" and code in FENCED and SOLE_ID not in self.timed_out:
            raise Broken(f"{request.__name__}: the only producer of its id was told {ErrorCode(code).name}")

    # -- what arrives at brokers -------------------------------------------

    def init(self, transactional_id: str, expected: Producer | None) -> Any:
        def initialise(reply: Callable[[Any], None]) -> None:
            coordinator = self.coordinator
            coordinator.finish(
                self._decide(coordinator.shard.init, transactional_id, timeout_ms=TIMEOUT_MS, expected=expected), reply
            )

        return initialise

    def add(self, transactional_id: str, producer: Producer, partition: int, version: int) -> Any:
        def request(reply: Callable[[Any], None]) -> None:
            coordinator = self.coordinator
            where = frozenset((("t", partition),))
            added = coordinator.shard.add(transactional_id, producer, where, client_version=version, now_ms=self.now)
            coordinator.finish(added, reply)

        return request

    def end(self, transactional_id: str, producer: Producer, commit: bool, version: int) -> Any:
        def end(reply: Callable[[Any], None]) -> None:
            coordinator = self.coordinator
            coordinator.finish(
                self._decide(coordinator.shard.end, transactional_id, producer, commit=commit, version=version), reply
            )

        return end

    def _decide(self, event: Callable[..., Any], *args: Any, **fields: Any) -> Any:
        try:
            return event(*args, **fields, new_id=None, now_ms=self.now)
        except NeedsProducerId:
            return event(*args, **fields, new_id=next(self.ids), now_ms=self.now)

    def produce(
        self, transactional_id: str, producer: Producer, partition: int, sequence: int, value: Any, version: int
    ) -> Any:
        leader = self.partitions[partition]

        def append(reply: Callable[[Any], None], code: ErrorCode) -> None:
            if code:
                reply(code)
                return
            try:
                leader.append(
                    header(*producer, sequence), None, value,
                    lambda kept: reply(ErrorCode.NONE if kept else ErrorCode.NOT_ENOUGH_REPLICAS),
                )  # fmt: skip
            except StorageError as error:
                late = "Epoch" in type(error).__name__
                reply(ErrorCode.INVALID_PRODUCER_EPOCH if late else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

        def produce(reply: Callable[[Any], None]) -> None:
            if leader.has_open(producer):
                append(reply, ErrorCode.NONE)
            elif version == CLASSIC:
                where = ("t", partition)
                append(reply, self.coordinator.shard.verify(transactional_id, producer, frozenset((where,)))[where])
            else:
                # Between the coordinator's answer and the append anything may happen.
                ask = self.add(transactional_id, producer, partition, version)
                ask(lambda code: self.after(lambda: append(reply, code), at_most=40))

        return produce

    # -- what a reader sees ------------------------------------------------

    def deliver(self, partition: int, value: Any) -> None:
        number, record = value
        story = self.stories[number]
        if not story.wants_commit:
            raise Broken(f"record {record} of transaction {number}, which nobody committed, was shown")
        if (partition, record) in story.delivered:
            raise Broken(f"record {record} of transaction {number} was shown twice")
        story.delivered.add((partition, record))

    def check_end(self) -> None:
        for partition in self.partitions:
            if partition.stable != len(partition.batches):
                raise Broken(f"partition {partition.index} is stuck at {partition.stable} of {len(partition.batches)}")
        for story in self.stories:
            expected = set(story.acknowledged)
            if story.delivered and story.delivered != expected:
                raise Broken(f"transaction {story.number} is torn: {story.delivered} of {expected}")
            if story.is_committed and story.delivered != expected:
                raise Broken(f"the commit of transaction {story.number} was acknowledged and is lost")
        transactions = self.coordinator.shard.transactions
        if any(each.state in PREPARED or each.state is TransactionState.ONGOING for each in transactions.values()):
            raise Broken("a transaction was never completed")
        rebuilt = TransactionShard(config=CONFIG, coordinator_epoch=0)
        for key, value in self.coordinator.log:
            rebuilt.replay(decode(key, value))
        known = {name: each._replace(last_producer_epoch=-1) for name, each in transactions.items()}
        if rebuilt.transactions != known:
            raise Broken("the log does not add up to what the coordinator knows")


def worn_out(transactional_id: str, random: Random) -> Any:
    """Some ids have nearly used up their epochs."""
    epoch = random.choice((0, 0, EPOCH_MAX - random.randint(2, 6)))
    used = Transaction(
        transactional_id=transactional_id,
        producer_id=len(transactional_id) * 7 + ord(transactional_id),
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
    )
    record = record_of(used)
    return encode_key(record.key), encode_value(record.value, record.version)


def life(world: World, transactional_id: str, version: int, *, transactions: int | None = None) -> Client:
    """What a client library does: it asks again where that may help, and gives up where it is told to."""
    producer = yield from initialise(world, transactional_id, None)
    sequences: dict[int, int] = {}
    for _ in range(transactions or world.random.randint(1, 4)):
        if producer is None:
            return
        story = Story(len(world.stories))
        world.stories.append(story)
        whole = yield from write(world, transactional_id, producer, story, sequences, version)
        commit = whole and world.random.random() < 0.7
        story.wants_commit = commit
        if not story.acknowledged and version == CLASSIC:
            continue
        ended = yield from finish(world, transactional_id, producer, commit, version)
        if ended is None:
            return
        if ended.error_code:
            producer = yield from initialise(world, transactional_id, producer)
            sequences.clear()
            continue
        story.is_committed = commit
        if version >= EPOCH_PER_TRANSACTION:
            producer = Producer(ended.producer_id, ended.producer_epoch)
            sequences.clear()
        elif not whole:  # KIP-360: what was not answered may still arrive, and must find an old epoch
            producer = yield from initialise(world, transactional_id, producer)
            sequences.clear()


def initialise(world: World, transactional_id: str, expected: Producer | None) -> Generator[Any, Any, Producer | None]:
    for _ in range(12):
        answer = yield world.init(transactional_id, expected)
        if answer is None or answer.error_code in RETRIABLE:
            continue
        return None if answer.error_code else Producer(answer.producer_id, answer.producer_epoch)
    return None


def write(
    world: World, transactional_id: str, producer: Producer, story: Story, sequences: dict[int, int], version: int
) -> Generator[Any, Any, bool]:
    added: set[int] = set()
    for record in range(world.random.randint(0, 4)):
        partition = world.random.randrange(PARTITIONS)
        if version == CLASSIC and partition not in added:
            if not (yield from retried(lambda p=partition: world.add(transactional_id, producer, p, version))):  # type: ignore[misc]
                return False
            added.add(partition)
        sequence = sequences.get(partition, 0)
        value = (story.number, record)
        if not (
            yield from retried(
                lambda p=partition, s=sequence, v=value: world.produce(transactional_id, producer, p, s, v, version)  # type: ignore[misc]
            )
        ):
            return False
        sequences[partition] = sequence + 1
        story.acknowledged.append((partition, record))
    return True


def retried(request: Callable[[], Any]) -> Generator[Any, Any, bool]:
    for _ in range(12):
        code = yield request()
        if code is not None and code not in RETRIABLE:
            return bool(code == ErrorCode.NONE)
    return False


def finish(
    world: World, transactional_id: str, producer: Producer, commit: bool, version: int
) -> Generator[Any, Any, Any]:
    for _ in range(12):
        answer = yield world.end(transactional_id, producer, commit, version)
        if answer is not None and answer.error_code not in RETRIABLE:
            return answer
    return None


def run(seed: int) -> World:
    world = World(seed)
    world.run()
    world.check_end()
    return world


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_shows_half_a_transaction_or_an_aborted_one_or_loses_a_commit_or_hangs(chunk: int) -> None:
    run_histories(run, count=HISTORIES, chunk=chunk, chunks=CHUNKS)


def test_the_same_seed_gives_the_same_history() -> None:
    assert run(7).coordinator.log == run(7).coordinator.log
