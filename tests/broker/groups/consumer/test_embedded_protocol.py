from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.groups.consumer.embedded_protocol import (
    MalformedSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
)

names = st.text(alphabet="abc.-_", min_size=1, max_size=9)


@given(
    partitions=st.dictionaries(names, st.lists(st.integers(0, 99), max_size=5), max_size=4), version=st.integers(0, 9)
)
def test_an_assignment_is_read_back_as_it_was_written(partitions, version):
    read = read_assignment(write_assignment(partitions, version=version))
    assert {name: list(numbers) for name, numbers in read} == partitions


def test_no_bytes_are_no_assignment():
    assert read_assignment(b"") == ()


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_a_subscription_is_read(version):
    data = struct.pack(">hih1si", version, 1, 1, b"t", -1)
    if version >= 1:
        data += struct.pack(">ih1sii", 1, 1, b"t", 1, 7)
    if version >= 2:
        data += struct.pack(">i", 42)
    if version >= 3:
        data += struct.pack(">h1s", 1, b"r")
    if version >= 4:
        data += b"what comes later is appended"
    read = read_subscription(data)
    assert read.topics == ("t",)
    assert read.owned == ((("t", (7,)),) if version >= 1 else ())
    assert read.generation_id == (42 if version >= 2 else -1)
    assert read.rack_id == ("r" if version >= 3 else None)


@given(data=st.binary(max_size=60))
def test_nothing_but_malformed_comes_of_garbage(data):
    for read in (read_subscription, read_assignment):
        with contextlib.suppress(MalformedSubscription):
            read(data)
