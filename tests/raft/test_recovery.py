from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.raft import (
    Configuration,
    Effects,
    Entry,
    FileStorage,
    HardState,
    Kind,
    Node,
    Snapshot,
    Survivor,
    UnknownMember,
)


def stored(directory: Path, *, snapshot: bool = False) -> FileStorage:
    """Of node 1 of three, with a learner, which has heard of two entries."""
    storage = FileStorage(directory)
    configuration = Configuration.of((1, 2, 3), learners=(4,))
    if snapshot:
        storage.save(
            Effects(
                hard_state=HardState(term=7, vote=3),
                snapshot=Snapshot(index=9, term=6, configuration=configuration, data=b"state"),
            )
        )
        return reopened(storage, directory)
    entries = (Entry(6, 1, configuration.encode(), Kind.CONFIGURATION), Entry(6, 2, b"decided"))
    storage.save(Effects(hard_state=HardState(term=7, vote=3), entries=entries))
    return reopened(storage, directory)


def reopened(storage: FileStorage, directory: Path) -> FileStorage:
    storage.close()
    return FileStorage(directory)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_survivor_elects_itself_and_keeps_what_it_has(tmp_path: Path, *, snapshot: bool) -> None:
    storage = stored(tmp_path, snapshot=snapshot)
    survivor = Survivor(saved=storage.load())
    before = survivor.last
    storage.save(survivor.alone(1))
    storage.close()

    saved = FileStorage(tmp_path).load()
    node = Node(1, (1, 2, 3), random=Random(1), saved=saved)
    assert node.configuration.voters == (1,)
    assert node.configuration.learners == (2, 3, 4)
    node.tick(10.0)
    committed: list[Any] = []
    while effects := node.take():
        node.saved(effects)
        committed += effects.committed
    assert node.is_leader
    assert node.term > 1000
    assert node.commit_index > before[1]
    assert snapshot or [each.payload for each in committed if each.kind is Kind.DATA] == [b"decided"]


def test_who_is_no_member_cannot_decide_for_the_others(tmp_path: Path) -> None:
    survivor = Survivor(saved=stored(tmp_path).load())
    with pytest.raises(UnknownMember):
        survivor.alone(9)
