import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.pipeline.source.varints import MalformedVarint, read_varints
from tidemark.protocol.record import put_varint

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(deadline=None)
@given(st.lists(INT64 | st.integers(-200, 200), min_size=1, max_size=30))
def test_numbers_of_all_lengths_are_read_together(numbers: list[int]) -> None:
    data, starts = bytearray(), []
    for number in numbers:
        starts.append(len(data))
        put_varint(data, number)
    found, behind = read_varints(np.frombuffer(bytes(data), np.uint8), np.array(starts))
    assert found.tolist() == numbers
    assert behind.tolist() == [*starts[1:], len(data)]


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 11, b""])
def test_a_number_without_an_end_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedVarint):
        read_varints(np.frombuffer(data, np.uint8), np.array([0]))
