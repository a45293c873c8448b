"""The clocks of simulated machines."""

from __future__ import annotations

from tidemark.simulation.network import Network
from tidemark.simulation.process import Machine
from tidemark.simulation.world import World


def test_the_clock_of_a_new_process_does_not_go_back_when_the_sleep_of_a_killed_one_would_have_ended() -> None:
    """Seed 60049 of five nodes: timers of the new one came 11 s late."""
    world = World(1)
    machine = Machine(world, Network(world), "node-1")
    machine.start_process().pause(10.0, machine_sleeps=True)
    world.run(until=2.0)
    machine.kill_process()
    process = machine.start_process()
    seen = []
    for until in (9.0, 10.5, 12.0):
        world.run(until=until)
        seen.append(process.monotonic())
    assert seen == [9.0, 10.5, 12.0]


def test_the_monotonic_clock_of_a_process_stands_still_while_its_machine_sleeps_and_the_boot_clock_does_not() -> None:
    world = World(1)
    machine = Machine(world, Network(world), "node-1")
    process = machine.start_process()
    process.pause(10.0, machine_sleeps=True)
    world.run(until=12.0)
    assert process.monotonic() == 2.0
    assert process.boot_clock() == 12.0
