"""What the simulated disk keeps when the power fails."""

from __future__ import annotations

from random import Random

from tidemark.simulation.disk import PAGE, File


def test_what_was_cut_off_does_not_come_back_by_a_sync_that_had_begun_before() -> None:
    for seed in range(20):
        file = File()
        file.write(0, b"a" * 100)
        end = file.begin_sync()
        file.truncate(10)
        file.sync()
        file.write(10, b"b" * 5)
        end()
        file.lose_power(Random(seed))
        assert bytes(file.data).rstrip(b"b\0") == b"a" * 10


def test_a_cut_that_is_taken_back_leaves_the_sync_before_it() -> None:
    file = File()
    file.write(0, b"a" * 100)
    end = file.begin_sync()
    file.truncate(10)
    file.restore(10, b"a" * 90, 100)
    end()
    file.lose_power(Random(1))
    assert bytes(file.data) == b"a" * 100


def test_a_page_may_be_lost_and_those_after_it_not() -> None:
    file = File()
    file.write(0, b"a" * 100)
    file.sync()
    file.write(100, b"b" * 2 * PAGE)
    file.lose_page(0)
    file.lose_power(Random(1))
    assert bytes(file.data) == (b"a" * 100).ljust(PAGE, b"\0") + b"b" * (PAGE + 100)
