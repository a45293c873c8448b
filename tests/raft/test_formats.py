"""Formats have versions: what the first Tidemark wrote is still read, and what a newer one writes is refused clearly.

`data/first_format` holds a journal, a snapshot, a hard state and messages as they were before there were versions.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from tidemark.raft import (
    Configuration,
    Entry,
    FileStorage,
    HardState,
    JournalCorrupt,
    Member,
    Saved,
    Snapshot,
    UnknownVersion,
)
from tidemark.raft.codec import decode, decode_hard_state, encode
from tidemark.raft.effects import Effects

FIRST_FORMAT = Path(__file__).parent / "data" / "first_format"
MEMBERS = Configuration(
    (
        Member(node_id=1, detail=b"localhost:9093"),
        Member(node_id=2, detail=b"localhost:9094"),
        Member(node_id=3, is_voter=False),
    )
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("journal", "snapshot", "hard-state"):
        shutil.copy(FIRST_FORMAT / name, tmp_path / name)
    return tmp_path


def loaded(directory: Path) -> Saved:
    storage = FileStorage(directory)
    try:
        return storage.load()
    finally:
        storage.close()


def test_the_first_format_is_still_read(directory: Path) -> None:
    assert loaded(directory) == Saved(
        hard_state=HardState(term=3, vote=2),
        snapshot=Snapshot(index=2, term=1, configuration=MEMBERS, data=b"state after two"),
        entries=(Entry(2, 3, b"third"), Entry(3, 4, b"fourth"), Entry(3, 5, b"fifth")),
    )


def test_a_directory_of_the_first_format_goes_on(directory: Path) -> None:
    storage = FileStorage(directory)
    storage.load()
    storage.save(Effects(hard_state=HardState(term=4), entries=(Entry(4, 5, b"another"), Entry(4, 6, b"sixth"))))
    storage.close()
    assert [entry.payload for entry in loaded(directory).entries] == [b"third", b"fourth", b"another", b"sixth"]


def test_messages_are_written_and_read_as_in_the_first_format() -> None:
    written = json.loads((FIRST_FORMAT / "messages.json").read_text())
    assert len(written) == 10
    for name, text in written.items():
        message = decode(bytes.fromhex(text))
        assert type(message).__name__ == name
        assert encode(message).hex() == text


def test_a_configuration_without_directory_ids_is_written_as_in_the_first_format(directory: Path) -> None:
    written = (directory / "snapshot").read_bytes()
    assert MEMBERS.encode() in written


def test_a_message_of_a_newer_format_is_refused_clearly() -> None:
    data = bytearray(bytes.fromhex(json.loads((FIRST_FORMAT / "messages.json").read_text())["TimeoutNow"]))
    data[0] |= 0x10
    with pytest.raises(UnknownVersion, match=r"a message of node 1 has format version 1, but .* up to 0: use a newer"):
        decode(bytes(data))


def test_a_configuration_of_a_newer_format_is_refused_clearly() -> None:
    with pytest.raises(UnknownVersion, match="has format version 2, but this Tidemark reads versions up to 1"):
        Configuration.decode(b"\x82" + MEMBERS.encode())


def test_a_hard_state_of_a_newer_format_is_refused_clearly(directory: Path) -> None:
    path = directory / "hard-state"
    path.write_bytes(path.read_bytes().replace(b"TIDEHST1", b"TIDEHST2"))
    with pytest.raises(UnknownVersion, match="format version 2"):
        decode_hard_state(path.read_bytes())
    with pytest.raises(JournalCorrupt, match=r"hard state has format version 2.*use a newer one"):
        loaded(directory)


def test_a_snapshot_of_a_newer_format_is_refused_clearly(directory: Path) -> None:
    path = directory / "snapshot"
    path.write_bytes(path.read_bytes().replace(b"TIDESNP2", b"TIDESNP3"))
    with pytest.raises(JournalCorrupt, match=r"snapshot has format version 3.*use a newer one"):
        loaded(directory)


@pytest.mark.parametrize("first_byte", [0x10, 0x03])
def test_an_entry_of_a_newer_format_or_kind_is_refused_clearly(directory: Path, first_byte: int) -> None:
    tail = struct.pack(">QQ", first_byte << 56 | 3, 6) + b"from the future"
    frame = struct.pack(">II", len(b"from the future"), zlib.crc32(tail)) + tail
    with (directory / "journal").open("ab") as file:
        file.write(frame)
    with pytest.raises(JournalCorrupt, match=r"entry 6, of kind .* has format version 1.*use a newer one"):
        loaded(directory)
    assert (directory / "journal").read_bytes().endswith(b"from the future")  # nothing was cut off
