"""What goes wrong, and what operators do meanwhile: each is a function of the world, chosen by chance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from raft_simulation.world import Host, World

SLOW_DISKS = ((0.0, 0.0), (0.0, 0.0), (0.001, 0.005), (0.01, 0.1), (0.2, 0.6))


def set_disk(host: Host, random: Random) -> None:
    host.sync_min, host.sync_spread = random.choice(SLOW_DISKS)


def partition(world: World) -> None:
    ids = [host.id for host in world.hosts]
    world.random.shuffle(ids)
    cut = world.random.randint(1, len(ids) - 1)
    world.network.heal()
    world.network.split(ids[:cut], ids[cut:], one_way=world.random.random() < 0.3)


def isolate_leader(world: World) -> None:
    for leader in world.leaders():
        others = [host.id for host in world.hosts if host is not leader]
        world.network.split([leader.id], others, one_way=world.random.random() < 0.3)


def cut_one_link(world: World) -> None:
    source, target = world.random.sample(world.hosts, 2)
    world.network.split([source.id], [target.id], one_way=world.random.random() < 0.5)


def cut_leader_from_one(world: World) -> None:
    """The one that misses the leader will try to take its place, though the others hear it."""
    for leader in world.leaders():
        other = world.random.choice([host for host in world.hosts if host is not leader])
        world.network.split([leader.id], [other.id])


def deafen_leader(world: World) -> None:
    """The leader is heard, but hears nobody: also not that it has been replaced."""
    for leader in world.leaders():
        others = [host.id for host in world.hosts if host is not leader]
        world.network.split(others, [leader.id], one_way=True)


def transfer_and_deafen(world: World) -> None:
    transfer(world)
    deafen_leader(world)


def heal(world: World) -> None:
    world.network.heal()


def crash(world: World) -> None:
    if alive := world.alive():
        host = world.random.choice(alive)
        world.crash(host)
        world.at(world.now + 4 * world.random.random() ** 2, _restart, (world, host))


def crash_leader(world: World) -> None:
    for host in world.leaders():
        world.crash(host)
        world.at(world.now + 2 * world.random.random(), _restart, (world, host))


def crash_all(world: World) -> None:
    for host in world.alive():
        world.crash(host)
        world.at(world.now + world.random.random(), _restart, (world, host))


def _restart(argument: tuple[World, Host]) -> None:
    world, host = argument
    if host.node is None:
        set_disk(host, world.random)
        world.start(host)


def pause(world: World) -> None:
    host = world.random.choice(world.hosts)
    host.paused_until = world.now + 2 * world.random.random()


def pause_leader(world: World) -> None:
    for host in world.leaders():
        host.paused_until = world.now + 2 * world.random.random()


def change_disk(world: World) -> None:
    set_disk(world.random.choice(world.hosts), world.random)


def hang_disk(world: World) -> None:
    """A disk takes nothing for a while: it is full, or does not answer."""
    host = world.random.choice(world.leaders() or world.hosts)
    host.disk_hangs_until = world.now + 6 * world.random.random()


def jump_clock(world: World) -> None:
    """Leases trust the clocks, so only worlds without leases have such jumps."""
    if not world.settings.lease_reads:
        world.random.choice(world.hosts).clock_offset += 2 * world.random.random()


def lose_connection(world: World) -> None:
    """Followers see their connections to the leader close; the leader may well be alive."""
    for host in world.alive():
        if world.random.random() < 0.5:
            _lose_leader(world, host)


def cut_off_leader(world: World) -> None:
    """All connections of the leader break at once, and it does not know."""
    leaders = world.leaders()
    isolate_leader(world)
    for host in world.alive():
        if host not in leaders:
            _lose_leader(world, host)


def _lose_leader(world: World, host: Host) -> None:
    node = host.node
    if node is not None and node.leader_id is not None:
        world.ask(host, partial(node.lose_leader, node.leader_id, host.clock(world.now)))


def transfer(world: World) -> None:
    target = world.random.choice(world.hosts).id
    for host in world.leaders():
        assert host.node is not None
        world.ask(host, partial(host.node.transfer_leadership, target, host.clock(world.now)))


def change_members(world: World) -> None:
    """A few changes at once, whatever chance picks: add a learner, promote it, remove anyone."""
    for host in world.leaders():
        for _ in range(world.random.randint(1, 3)):
            _change_member(world, host, world.random.choice(world.hosts).id)


def _change_member(world: World, host: Host, someone: int) -> None:
    node = host.node
    if node is None or not node.is_leader:
        return
    member = node.configuration.member(someone)
    if member is None:
        world.ask(host, partial(node.add_learner, someone))
    elif not member.is_voter:
        world.ask(host, partial(node.add_voter, someone))
    else:
        world.ask(host, partial(node.remove_member, someone))


def change_members_apart(world: World) -> None:
    isolate_leader(world)
    change_members(world)


def take_snapshot(world: World) -> None:
    world.snapshot(world.random.choice(world.hosts))


Fault = Callable[[World], None]
FAULTS: list[Fault] = [
    partition,
    partition,
    isolate_leader,
    cut_off_leader,
    cut_off_leader,
    cut_one_link,
    cut_leader_from_one,
    deafen_leader,
    transfer_and_deafen,
    heal,
    heal,
    heal,
    crash,
    crash,
    crash_leader,
    crash_all,
    pause,
    pause_leader,
    change_disk,
    hang_disk,
    jump_clock,
    lose_connection,
    transfer,
    change_members,
    change_members,
    change_members,
    change_members_apart,
    take_snapshot,
    take_snapshot,
    take_snapshot,
]
