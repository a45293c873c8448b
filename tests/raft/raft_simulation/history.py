"""One history from one seed: a cluster, clients, faults for a while, then peace, and a check that all came well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from raft_simulation.checker import check
from raft_simulation.faults import FAULTS, Fault, set_disk
from raft_simulation.network import Network
from raft_simulation.world import World
from tidemark.raft import Node, RaftSettings

CHAOS_SECONDS = 20.0
PEACE_SECONDS_MAX = 60.0
CLOCK_DRIFT_MAX = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    seconds: float  # of simulated time
    steps: int
    committed: int
    acknowledged: int
    reads: int
    terms: int


def run_seed(
    seed: int,
    *,
    node_class: Callable[..., Node] = Node,
    faults: Sequence[Fault] = FAULTS,
    chaos_seconds: float = CHAOS_SECONDS,
) -> Result:
    world = make_world(seed, node_class=node_class)
    for host in world.hosts:
        world.start(host)
    _disturb(world, faults, until=chaos_seconds)
    world.run_until(chaos_seconds)
    _make_peace(world)
    world.checker.at_end()
    return Result(
        seconds=world.now,
        steps=world.steps,
        committed=len(world.checker.ledger),
        acknowledged=len(world.checker.acknowledged),
        reads=world.checker.reads,
        terms=len(world.checker.leaders),
    )


def make_world(seed: int, *, node_class: Callable[..., Node] = Node) -> World:
    random = Random(seed)
    hosts = random.choice((3, 3, 5))
    voters = range(1, 1 + random.choice((hosts, hosts, 3)))
    settings = RaftSettings(
        heartbeat_interval=0.1,
        election_timeout=0.5,
        append_entries_max=4,
        append_bytes_max=8,
        inflight_max=3,
        apply_bytes_max=16,
        snapshot_chunk_bytes=16,
        entries_kept=random.choice((0, 3)),
        catch_up_entries_max=4,
        lease_reads=random.random() < 0.5,
        clock_drift_max=CLOCK_DRIFT_MAX,
    )
    through_bytes = random.random() < 0.1
    world = World(
        seed, hosts=hosts, voters=voters, settings=settings, node_class=node_class, through_bytes=through_bytes
    )
    world.crash_after_vote = random.choice((0.0, 0.2))
    world.crash_after_append = random.choice((0.0, 0.0, 0.01))
    world.crash_after_commit = random.choice((0.0, 0.0, 0.05))
    world.network = Network.of_chance(world.random)
    for host in world.hosts:
        host.clock_offset = 1000 * random.random()
        host.clock_rate = 1 + CLOCK_DRIFT_MAX * random.uniform(-1, 1)
        set_disk(host, random)
    return world


def _disturb(world: World, faults: Sequence[Fault], *, until: float) -> None:
    """Plan the faults and the clients' work. Clients ask whoever believes to lead: also one who is wrong."""
    random = world.random
    fault_every = random.choice((0.2, 0.5, 1.5))
    work_every = random.choice((0.05, 0.2))
    _repeat(world, random.expovariate, 1 / fault_every, until, lambda: random.choice(faults)(world))
    _repeat(world, random.expovariate, 1 / work_every, until, lambda: _work(world))


def _repeat(
    world: World, wait: Callable[[float], float], rate: float, until: float, action: Callable[[], None]
) -> None:
    def again(_: object) -> None:
        action()
        if (next_at := world.now + wait(rate)) < until:
            world.at(next_at, again, None)

    world.at(wait(rate), again, None)


def _work(world: World) -> None:
    for host in world.leaders():
        if world.random.random() < 0.6:
            for _ in range(world.random.choice((1, 1, 1, 6))):
                world.propose(host)
        else:
            world.read(host)


def _make_peace(world: World) -> None:
    """With the faults gone the quorum must find a leader, commit, and bring every member up to date."""
    world.network.become_good()
    world.crash_after_vote = world.crash_after_append = world.crash_after_commit = 0.0
    for host in world.hosts:
        host.sync_min = host.sync_spread = host.paused_until = host.disk_hangs_until = 0.0
        if host.node is None:
            world.start(host)
    until = world.now + PEACE_SECONDS_MAX
    goal = len(world.checker.ledger) + 2
    while world.now < until:
        world.run_until(world.now + 0.5)
        if _is_settled(world, goal):
            return
        for host in world.leaders():
            if len(world.checker.ledger) < goal:
                world.propose(host)
    check(False, "progress: no settled quorum after a minute of peace")


def _is_settled(world: World, goal: int) -> bool:
    leaders = world.leaders()
    if len(leaders) != 1 or leaders[0].node is None or leaders[0].node.commit_index < goal:
        return False
    leader = leaders[0].node
    members = [world.host(member.node_id) for member in leader.configuration.members]
    return all(host.applied_index == leader.log.last_index for host in members)
