"""Real drivers with real files: over an in-memory transport and over loopback sockets, killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from tidemark.raft import (
    Driver,
    Effects,
    Entry,
    FileStorage,
    Leadership,
    LeadershipLost,
    NotLeader,
    RaftError,
    RaftSettings,
    Snapshot,
    StaleEpoch,
)

SETTINGS = RaftSettings(heartbeat_interval=0.05, election_timeout=0.3, entries_kept=2)
PATIENCE_SECONDS = 20


class Words:
    """The state machine: the words that were committed, in order."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.restored = 0
        self.leaderships: list[Leadership | None] = []

    async def prepare(self, entries: Sequence[Entry]) -> None:
        await asyncio.sleep(0)

    def apply(self, entries: Sequence[Entry]) -> None:
        self.words += [entry.payload for entry in entries]

    async def restore(self, snapshot: Snapshot) -> None:
        await asyncio.sleep(0)
        self.restored += 1
        self.words = snapshot.data.split(b" ") if snapshot.data else []

    async def snapshot(self) -> bytes:
        await asyncio.sleep(0)
        return b" ".join(self.words)

    def lead(self, leadership: Leadership | None) -> None:
        self.leaderships.append(leadership)


class Wire:
    """An in-memory transport: a message arrives in the next turn of the loop, if its target lives."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def send(self, to: int, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, to, data)

    def _deliver(self, to: int, data: bytes) -> None:
        if (driver := self._cluster.drivers.get(to)) is not None:
            driver.receive(data)


class Cluster:
    def __init__(self, directory: Path, *, voters: Sequence[int] = (1, 2, 3)) -> None:
        self.directory = directory
        self.voters = voters
        self.drivers: dict[int, Driver] = {}
        self.machines: dict[int, Words] = {}
        self.settings = SETTINGS
        self.snapshot_after_bytes = 1 << 20
        self.storages: dict[int, FileStorage] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def start(self, node_id: int) -> Driver:
        storage = self.storages[node_id] = FileStorage(self.directory / str(node_id))
        machine = self.machines[node_id] = Words()
        driver = Driver(
            node_id,
            self.voters if node_id in self.voters else (),
            storage=storage,
            transport=Wire(self),
            machine=machine,
            random=Random(node_id),
            settings=self.settings,
            snapshot_after_bytes=self.snapshot_after_bytes,
        )
        self.drivers[node_id] = driver
        self._tasks[node_id] = asyncio.get_running_loop().create_task(driver.run())
        return driver

    async def kill(self, node_id: int) -> None:
        """No goodbye: whatever was not saved is gone."""
        self.drivers.pop(node_id).stop()
        self._tasks[node_id].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks.pop(node_id)
        self.storages.pop(node_id).close()

    async def leader(self, *, other_than: int | None = None) -> Driver:
        async def find() -> Driver:
            while True:
                for node_id, driver in self.drivers.items():
                    if driver.node.is_leader and node_id != other_than:
                        return driver
                await asyncio.sleep(0.005)

        return await asyncio.wait_for(find(), PATIENCE_SECONDS)

    async def ask(self, what: Callable[[Driver], Awaitable[int]]) -> Driver:
        """Ask the leader, whoever that is, until it surely happened, as a client with idempotent requests would."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                driver = await self.leader()
                with contextlib.suppress(LeadershipLost, RaftError):
                    await what(driver)
                    return driver
                await asyncio.sleep(0.01)

    async def say(self, word: bytes) -> None:
        await self.ask(lambda leader: leader.propose(word))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for node_id in list(cluster.drivers):
        await cluster.kill(node_id)


async def test_three_nodes_agree_on_what_was_proposed(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await asyncio.gather(*(cluster.say(b"%d" % number) for number in range(100)))
    await cluster.say(b"end")
    await until(lambda: all(machine.words[-1:] == [b"end"] for machine in cluster.machines.values()))
    assert set(cluster.machines[1].words) == {b"end", *(b"%d" % number for number in range(100))}
    assert len({tuple(machine.words) for machine in cluster.machines.values()}) == 1


async def test_a_killed_leader_is_replaced_and_comes_back_as_a_follower(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    words = []
    for turn in range(4):
        await cluster.say(word := b"before-%d" % turn)
        words.append(word)
        killed = (await cluster.leader()).node.id
        await cluster.kill(killed)
        await cluster.say(word := b"after-%d" % turn)
        words.append(word)
        await cluster.start(killed)
    await until(lambda: all(machine.words[-1:] == words[-1:] for machine in cluster.machines.values()))
    for machine in cluster.machines.values():
        assert list(dict.fromkeys(machine.words)) == words


async def test_all_nodes_restart_with_what_was_committed(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    for number in range(10):
        await cluster.say(b"%d" % number)
    epoch = (await cluster.leader()).node.term
    for node_id in (1, 2, 3):
        await cluster.kill(node_id)
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    leader = await cluster.ask(lambda leader: leader.read())
    words = cluster.machines[leader.node.id].words
    assert list(dict.fromkeys(words)) == [b"%d" % number for number in range(10)]
    assert leader.node.term > epoch


async def test_a_new_node_joins_by_snapshot_and_becomes_a_voter(cluster: Cluster) -> None:
    cluster.snapshot_after_bytes = 100
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    for number in range(100):
        await cluster.say(b"word-%d" % number)
    newcomer = await cluster.start(4)
    await cluster.ask(lambda leader: leader.add_learner(4, detail=b"rack-4"))
    await until(lambda: set(cluster.machines[4].words) >= {b"word-0", b"word-99"})
    leader = await cluster.ask(lambda leader: leader.add_voter(4))
    assert cluster.machines[4].restored
    await until(lambda: newcomer.node.configuration.voters == (1, 2, 3, 4))
    removed = next(node_id for node_id in (1, 2, 3) if node_id != leader.node.id)
    await cluster.ask(lambda leader: leader.remove_member(removed))
    await cluster.kill(removed)
    await cluster.say(b"end")
    await until(lambda: cluster.machines[4].words[-1:] == [b"end"])
    assert newcomer.node.configuration.member(4).detail == b"rack-4"  # type: ignore[union-attr]


async def test_leadership_is_handed_over_on_request(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.say(b"first")
    old = await cluster.leader()
    target = next(node_id for node_id in (1, 2, 3) if node_id != old.node.id)
    old.transfer_leadership(target)
    new = await cluster.leader(other_than=old.node.id)
    assert new.node.id == target
    await cluster.say(b"second")


async def test_a_closed_connection_is_noticed_long_before_the_election_timeout(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.say(b"first")
    killed = (await cluster.leader()).node.id
    await until(lambda: all(driver.node.leader_id == killed for driver in cluster.drivers.values()))
    for driver in cluster.drivers.values():  # from here on only the closed connection can end this leadership
        driver.node.settings = RaftSettings(heartbeat_interval=0.05, election_timeout=3600)
    await cluster.ask(lambda leader: leader.read())  # which takes a message to each, and so a new, long wait
    await cluster.kill(killed)
    for driver in cluster.drivers.values():
        driver.disconnected(killed)
    await until(lambda: all(driver.node.leader_id != killed for driver in cluster.drivers.values()))
    for driver in cluster.drivers.values():
        driver.node.settings = SETTINGS
    await cluster.leader()
    for node_id in list(cluster.drivers):
        await cluster.kill(node_id)


async def test_a_quorum_of_one_needs_no_time_out(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(1,))
    cluster.settings = RaftSettings(election_timeout=3600)
    driver = await cluster.start(1)
    leader = await cluster.leader()
    assert await leader.propose(b"alone") == 2  # after the no-op that opens the term
    assert await driver.read() >= 2
    await cluster.kill(1)


async def test_a_follower_names_the_leader(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    leader = await cluster.leader()
    follower = next(driver for driver in cluster.drivers.values() if driver is not leader)
    await until(lambda: follower.get_leader() is not None)
    with pytest.raises(NotLeader) as refusal:
        await follower.propose(b"no")
    assert refusal.value.leader == leader.node.id
    with pytest.raises(StaleEpoch):
        await leader.propose(b"late", epoch=leader.node.term - 1)


async def test_a_failing_disk_stops_the_node_and_fails_what_waits(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(1,))
    driver = await cluster.start(1)
    await cluster.leader()

    def fail(effects: Effects) -> None:
        raise OSError(5, "Input/output error")

    cluster.storages[1].save = fail  # type: ignore[method-assign]
    with pytest.raises(LeadershipLost):
        await driver.propose(b"lost")
    with pytest.raises(OSError, match="Input/output error"):
        await cluster._tasks[1]
    cluster.storages[1].close()


async def test_garbage_from_the_network_is_dropped(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(1,))
    driver = await cluster.start(1)
    driver.receive(b"\x00garbage")
    await (await cluster.leader()).propose(b"still here")
    await cluster.kill(1)


@pytest.mark.parametrize("kind", ["full", "hung"])
async def test_a_leader_whose_disk_is_full_or_hangs_makes_way_and_knows_what_others_decide(
    cluster: Cluster, kind: str
) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.say(b"before")
    stuck = await cluster.leader()
    works = threading.Event()
    save = cluster.storages[stuck.node.id].save

    def refuse(effects: Effects) -> None:
        if kind == "hung":
            works.wait(PATIENCE_SECONDS)
        elif not works.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        save(effects)

    cluster.storages[stuck.node.id].save = refuse  # type: ignore[method-assign]
    words = cluster.machines[stuck.node.id].words
    await asyncio.wait_for(stuck.propose(b"on the disks of the others"), PATIENCE_SECONDS)
    assert words[-1] == b"on the disks of the others"
    other = await cluster.leader(other_than=stuck.node.id)
    await other.propose(b"decided without it")
    await until(lambda: words[-1:] == [b"decided without it"])
    assert not stuck.node.is_leader
    await cluster.say(b"once more")
    await until(lambda: words[-1:] == [b"once more"])
    works.set()
    await until(lambda: stuck.node.log.persisted_index == stuck.node.log.last_index)
    await cluster.kill(stuck.node.id)
    await cluster.start(stuck.node.id)
    await until(lambda: cluster.machines[stuck.node.id].words == words)


async def test_a_node_whose_disk_is_full_can_be_stopped_without_an_error(cluster: Cluster) -> None:
    """Seed 70029 of what `make simulate` ran: it stopped as a node whose metadata log had failed."""
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.say(b"before")
    full = await cluster.leader()

    def refuse(effects: Effects) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster.storages[full.node.id].save = refuse  # type: ignore[method-assign]
    await asyncio.wait_for(full.propose(b"on the disks of the others"), PATIENCE_SECONDS)
    full.stop()
    await asyncio.wait_for(cluster._tasks[full.node.id], PATIENCE_SECONDS)


async def test_a_snapshot_may_cover_entries_that_were_never_saved_one_by_one(cluster: Cluster) -> None:
    """They were applied while the disk was busy with those before them."""
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.say(b"before")
    slow = next(driver for driver in cluster.drivers.values() if not driver.node.is_leader)
    await cluster.kill(slow.node.id)
    cluster.snapshot_after_bytes = 1
    slow = await cluster.start(slow.node.id)
    machine, storage = cluster.machines[slow.node.id], cluster.storages[slow.node.id]
    saves = [threading.Event() for _ in range(3)]
    waiting, save = iter(saves), storage.save

    def save_slowly(effects: Effects) -> None:
        if (may_go := next(waiting, None)) is not None:
            assert may_go.wait(PATIENCE_SECONDS)
        save(effects)

    storage.save = save_slowly  # type: ignore[method-assign]
    for number in range(10):
        word = b"word-%d" % number
        await cluster.say(word)
        await until(lambda word=word: machine.words[-1:] == [word])  # type: ignore[misc]
    for may_go in saves:
        may_go.set()
        await cluster.say(b"another")
    await until(lambda: slow.node.log.persisted_index == slow.node.log.last_index)
    words = [*machine.words]
    await cluster.kill(slow.node.id)
    await cluster.start(slow.node.id)
    await until(lambda: cluster.machines[slow.node.id].words == words)
