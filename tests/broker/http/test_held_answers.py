"""Room for what answers hold in memory: who waits for it, who is cut off, and how reads end that find none."""

import asyncio
from typing import Any

from tidemark.broker.core.sliced_work import at_once
from tidemark.broker.http.decoding import CROWDED_CHARS, Decoder, Wanted, _Reading
from tidemark.broker.http.held_answers import HeldAnswers
from tidemark.protocol.messages.fetch import PartitionData
from tidemark.protocol.records import Record, build_batch, iter_batches, payload_of


class Reader:
    def __init__(self, room: HeldAnswers, host: str = "here") -> None:
        self.room = room
        self.host = host
        self.held_bytes = 0
        self.is_cut_off = False

    def hold(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.room.count(size_bytes)

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self.room.release(size_bytes)

    def abort(self) -> None:
        self.is_cut_off = True
        self.release(self.held_bytes)


def test_whoever_does_not_read_for_longest_is_cut_off_and_no_more_than_is_needed() -> None:
    room = HeldAnswers(100)
    readers = [Reader(room) for _ in range(4)]
    for each in readers[:3]:
        each.hold(30)
        room.blocked(each)
    room.unblocked(readers[0])  # it reads on
    readers[3].hold(30)
    assert [each.is_cut_off for each in readers] == [False, True, False, False]
    assert room.used_bytes == 90


def test_nobody_is_cut_off_for_what_another_client_asks_for() -> None:
    room = HeldAnswers(100)
    modest = Reader(room, "modest")
    greedy = [Reader(room, "greedy") for _ in range(4)]
    modest.hold(20)
    room.blocked(modest)  # it is far away: each of its reads takes a while
    for each in greedy:
        each.hold(30)
        room.blocked(each)
    assert not modest.is_cut_off
    assert [each.is_cut_off for each in greedy] == [True, True, False, False]


async def test_who_needs_room_waits_for_it_in_the_order_of_coming() -> None:
    room, holder, began = HeldAnswers(100), Reader(HeldAnswers(0)), list[int]()
    holder.room = room
    holder.hold(100)

    async def begin(number: int) -> None:
        await room.room()
        began.append(number)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    holder.release(1)
    await asyncio.wait(waiting, timeout=5)
    assert began == [1, 2]


async def test_who_waits_is_let_in_when_a_reader_stops_reading() -> None:
    room = HeldAnswers(100)
    reader = Reader(room)
    reader.hold(100)
    waiting = asyncio.ensure_future(room.room())
    await asyncio.sleep(0)
    assert not waiting.done(), "it is still being sent"
    room.blocked(reader)
    await asyncio.wait_for(waiting, 5)
    assert reader.is_cut_off


async def test_those_who_wait_do_not_wait_for_what_they_hold_themselves() -> None:
    room = HeldAnswers(100)
    readers = [Reader(room) for _ in range(3)]
    for each in readers:
        each.hold(80)

    async def read(reader: Reader) -> None:
        await room.room(80)
        reader.release(80)

    await asyncio.wait_for(asyncio.gather(*map(read, readers)), 5)
    assert room.used_bytes == 0


async def test_a_poll_of_several_partitions_does_not_wait_for_what_it_has_of_the_first() -> None:
    room = HeldAnswers(100)
    decoder, polls = Decoder(room), [Reader(room) for _ in range(3)]
    batch = bytes(build_batch([Record(value=b"x")]))
    wanted = Wanted(formats={"key": "string", "value": "string"})
    for each in polls:
        each.hold(90)  # of the first

    async def read_second(poll: Reader) -> int:
        data = PartitionData(records=batch)
        found = await decoder.decoded(data, "t", 1, 0, wanted, chars_max=1 << 20, holder=poll)
        poll.release(poll.held_bytes)  # it is sent
        return len(found.records)

    assert await asyncio.wait_for(asyncio.gather(*map(read_second, polls)), 5) == [1, 1, 1]


def test_a_read_that_ends_for_want_of_room_goes_on_behind_its_last_record_though_there_is_room_again() -> None:
    room = HeldAnswers(200_000)
    holder: Any = Reader(room)
    values = [b"%d" % number * 10_000 for number in range(10, 60)]
    batch = build_batch([Record(value=value) for value in values])
    ((header, data),) = iter_batches(memoryview(bytes(batch)))
    wanted = Wanted(formats={"key": "string", "value": "string"})

    def reading(offset: int) -> _Reading:
        return _Reading(offset, wanted, topic="t", partition=0, chars_max=1 << 20, room=room, holder=holder)

    first = reading(0)
    at_once(first.read(header, payload_of(data)))
    assert CROWDED_CHARS <= first.chars < CROWDED_CHARS + 100_000
    assert 0 < first.next_offset == len(first.records) < len(values)
    holder.release(holder.held_bytes)
    assert first.ends(), "or the rest of the batch would be passed over"
    second = reading(first.next_offset)
    at_once(second.read(header, payload_of(data)))
    assert '"' + values[first.next_offset].decode() + '"' in second.records[0]
