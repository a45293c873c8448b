from __future__ import annotations

import os

import pytest

from tidemark.storage.epochs import EpochCache
from tidemark.storage.files import Files


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "leader-epoch-checkpoint")


@pytest.fixture
def cache(path):
    cache = EpochCache(Files(), path)
    for epoch, start in [(2, 0), (4, 10), (7, 30)]:
        cache.assign(epoch=epoch, start=start)
    return cache


def test_the_file_has_kafkas_format(cache, path):
    with open(path) as file:
        assert file.read() == "0\n3\n2 0\n4 10\n7 30\n"


def test_it_reads_what_it_wrote(cache, path):
    assert EpochCache.load(Files(), path).entries() == [(2, 0), (4, 10), (7, 30)]


@pytest.mark.parametrize("content", ["", "1\n0\n", "0\n2\n1 1\n", "0\n1\nx y\n", "0\nmany\n", "0\n3\n2 0\n4 10\n7 3"])
def test_a_damaged_file_counts_as_absent(path, content):
    with open(path, "w") as file:
        file.write(content)
    cache = EpochCache.load(Files(), path)
    assert (cache.entries(), cache.latest) == ([], -1)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (8, (-1, -1)), (7, (7, 50)), (6, (4, 30)), (5, (4, 30)), (4, (4, 30)), (3, (2, 10)), (1, (1, 0))],
)
def test_end_offsets_are_those_kafka_would_give(cache, asked, answer):
    assert cache.end_offset(asked, log_end=50) == answer


def test_a_new_epoch_removes_what_contradicts_it(cache):
    cache.assign(epoch=9, start=10)
    assert cache.entries() == [(2, 0), (9, 10)]


def test_assigning_the_latest_epoch_again_changes_nothing(cache):
    cache.assign(epoch=7, start=45)
    assert cache.entries()[-1] == (7, 30)


def test_truncating_the_end_drops_epochs_that_began_there(cache):
    cache.truncate_end(30)
    assert cache.entries() == [(2, 0), (4, 10)]
    assert cache.latest == 4


def test_truncating_the_start_lets_the_epoch_there_begin_there(cache, path):
    cache.truncate_start(20)
    assert cache.entries() == [(4, 20), (7, 30)]
    again = EpochCache.load(Files(), path)
    again.truncate_start(20)
    assert again.entries() == [(4, 20), (7, 30)], "a log that is opened starts there, too"


def test_what_the_start_leaves_behind_goes_from_the_file_with_the_next_change(cache, path):
    cache.truncate_start(20)
    assert cache.changes == 3, "nothing was written for it"
    cache.assign(epoch=8, start=40)
    assert EpochCache.load(Files(), path).entries() == [(4, 20), (7, 30), (8, 40)]


def test_truncating_before_the_first_epoch_changes_nothing(cache):
    cache.truncate_start(0)
    assert cache.entries()[0] == (2, 0)


def test_the_epoch_of_an_offset(cache):
    assert [cache.epoch_at(offset) for offset in (0, 9, 10, 29, 30, 99)] == [2, 2, 4, 4, 7, 7]


def test_an_epoch_that_cannot_be_saved_is_not_assigned(cache, monkeypatch):
    def full(*arguments, **options):
        raise OSError("full")

    monkeypatch.setattr(Files, "replace", full)
    with pytest.raises(OSError, match="full"):
        cache.assign(epoch=9, start=40)
    assert cache.latest == 7
    assert cache.entries()[-1] == (7, 30)


def test_an_announced_epoch_is_known_at_once_and_written_with_its_first_batch(path):
    cache = EpochCache.load(Files(), path)
    cache.announce(epoch=3, start=0)
    assert (cache.latest, cache.saved, cache.end_offset(3, log_end=0)) == (3, -1, (3, 0))
    assert not os.path.exists(path)
    cache.assign(epoch=3, start=0)
    assert cache.saved == 3
    assert EpochCache.load(Files(), path).entries() == [(3, 0)]


def test_of_epochs_announced_one_after_the_other_only_the_last_is_written(cache, path):
    cache.announce(epoch=8, start=50)
    cache.announce(epoch=9, start=50)
    cache.assign(epoch=9, start=50)
    assert EpochCache.load(Files(), path).entries() == [(2, 0), (4, 10), (7, 30), (9, 50)]
    assert EpochCache.load(Files(), path).saved == 9


def test_an_announced_epoch_that_finds_no_room_is_written_with_the_next_batch(cache, path, monkeypatch):
    cache.announce(epoch=8, start=50)
    with monkeypatch.context() as full:
        full.setattr(Files, "replace", _no_room)
        with pytest.raises(OSError, match="no room"):
            cache.assign(epoch=8, start=50)
    assert (cache.latest, cache.saved) == (8, 7)
    cache.assign(epoch=8, start=50)
    assert EpochCache.load(Files(), path).latest == 8


def _no_room(*_: object, **__: object) -> None:
    raise OSError("no room")
