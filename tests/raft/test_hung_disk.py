"""A disk that takes nothing, because it is full or hangs, stops one node and not the quorum."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raft_simulation.history import make_world
from raft_simulation.network import Network
from raft_simulation.scenario import Quorum
from raft_simulation.world import Host, World

from tidemark.raft import Node

FOR_EVER = float("inf")


def quiet_world(seed: int) -> World:
    """Nothing goes wrong in it but what the test makes go wrong."""
    world = make_world(seed)
    world.network = Network(random=world.random)
    world.crash_after_vote = world.crash_after_append = world.crash_after_commit = 0.0
    for host in world.hosts:
        host.sync_min = host.sync_spread = 0.0
        world.start(host)
    return world


def run_until(world: World, holds: Callable[[], bool], *, seconds_max: float) -> float:
    """How long it took. Clients ask for something all the time."""
    began = world.now
    while not holds():
        assert world.now < began + seconds_max, f"not within {seconds_max:g} s"
        for host in world.leaders():
            world.propose(host)
        world.run_until(world.now + 0.05)
    return world.now - began


def leader_of(world: World) -> Host:
    run_until(world, lambda: len(world.leaders()) == 1 and len(world.checker.ledger) > 2, seconds_max=10)
    return world.leaders()[0]


def hang_leader(world: World) -> Host:
    hung = leader_of(world)
    hung.disk_hangs_until = FOR_EVER
    return hung


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_whose_disk_hangs_leaves_the_lead_to_another(seed: int) -> None:
    world = quiet_world(seed)
    hung = hang_leader(world)
    decided = len(world.checker.ledger)
    # What followers hold of the last entries may still be committed by them; ten more need a leader that saves.
    is_over = lambda: hung not in world.leaders() and len(world.checker.ledger) > decided + 10  # noqa: E731
    seconds = run_until(world, is_over, seconds_max=5)
    assert seconds < 2 * world.settings.save_timeout


@pytest.mark.parametrize("seed", range(5))
def test_a_node_whose_disk_hangs_does_not_stand_for_election(seed: int) -> None:
    world = quiet_world(seed)
    hung = hang_leader(world)
    run_until(world, lambda: hung not in world.leaders() and bool(world.leaders()), seconds_max=5)
    for leader in world.leaders():
        world.crash(leader)  # one voter is left whose disk works, or more, but never the one whose disk hangs
    for _ in range(100):
        world.run_until(world.now + 0.05)
        assert hung not in world.leaders()


def test_it_takes_part_again_when_its_disk_does() -> None:
    world = quiet_world(3)
    hung = hang_leader(world)
    run_until(world, lambda: hung not in world.leaders() and bool(world.leaders()), seconds_max=5)
    hung.disk_hangs_until = 0.0
    if hung.saving is not None:
        world.at(world.now, world._sync_done, (hung, hung.incarnation))
    run_until(world, lambda: hung.applied_index >= len(world.checker.ledger) - 2 > 5, seconds_max=10)


def test_without_the_check_a_leader_whose_disk_hangs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: this is how it was."""
    monkeypatch.setattr(Node, "is_disk_stalled", False)
    world = quiet_world(1)
    hung = hang_leader(world)
    with pytest.raises(AssertionError, match="not within"):
        run_until(world, lambda: hung not in world.leaders(), seconds_max=20)


def test_a_quorum_of_one_waits_for_its_disk_because_nobody_else_can_lead() -> None:
    quorum = Quorum(1)
    node = quorum.elect(1)
    node.propose(b"slow")
    effects = node.take()
    assert effects.entries
    quorum.now += 100 * quorum.settings.election_timeout
    node.tick(quorum.now)
    assert node.is_leader
    node.saved(effects)
    assert node.commit_index == node.log.last_index
