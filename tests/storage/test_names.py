from __future__ import annotations

import pytest

from tidemark.storage import names


def test_files_are_named_by_twenty_digits():
    assert names.file_name(42, names.LOG) == "00000000000000000042.log"
    assert names.offset_of("00000000000000000042.log.deleted") == 42


@pytest.mark.parametrize("name", ["42.log", "leader-epoch-checkpoint", "0000000000000000004x.log", "0" * 20, ""])
def test_other_files_have_no_offset(name):
    assert names.offset_of(name) is None


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders-3", ("orders", 3)),
        ("a-b-c-0", ("a-b-c", 0)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("orders", None),
        ("-1", None),
        ("orders-x", None),
        ("orders-0.6d1e0d5a6d1e0d5a6d1e0d5a6d1e0d5a-delete", None),
        ("orders-0.6d1e-future", None),
    ],
)
def test_partition_directories_are_recognised(name, parts):
    assert names.parse_directory(name) == parts
