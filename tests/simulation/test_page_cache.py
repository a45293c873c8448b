"""What is in a simulated machine's memory, and what must be read from its disk."""

from __future__ import annotations

import pytest

from tidemark.simulation.disk import PAGE
from tidemark.simulation.network import Network
from tidemark.simulation.process import Machine
from tidemark.simulation.world import World


def test_what_was_dropped_from_memory_is_read_by_who_waits_for_the_disk_and_then_by_all() -> None:
    world = World(1)
    machine = Machine(world, Network(world), "node-1")
    process = machine.start_process()
    files = process.files
    file = files.open_data("/log", create=True)
    files.write(file.fileno(), b"x" * PAGE)
    files.fdatasync(file.fileno())
    files.write(file.fileno(), b"y" * PAGE)  # not synced: it must stay in memory
    machine.disk.drop_caches()
    assert not file.is_cached(position=0, length=10)
    with pytest.raises(BlockingIOError):
        files.read_cached(file.fileno(), 10, 0)
    assert files.read_cached(file.fileno(), 10, PAGE) == b"y" * 10
    before = process.disk_seconds
    file.load(position=0, length=10)
    assert process.disk_seconds > before
    assert files.read_cached(file.fileno(), 10, 0) == b"x" * 10


def test_after_a_loss_of_power_nothing_is_in_memory() -> None:
    world = World(1)
    machine = Machine(world, Network(world), "node-1")
    files = machine.start_process().files
    file = files.open_data("/log", create=True)
    files.write(file.fileno(), b"x" * PAGE)
    files.fdatasync(file.fileno())
    files.sync_directory("/")
    machine.cut_power()
    machine.switch_on()
    again = machine.start_process().files.open_to_read("/log")
    assert not again.is_cached(position=0, length=10)
    assert again.read_at(0, 10) == b"x" * 10
    assert again.is_cached(position=0, length=PAGE)
