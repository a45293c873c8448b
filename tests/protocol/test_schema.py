"""What a declaration means, how codecs treat tags and nulls, and what they say about values that do not fit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.protocol.codegen import source_of
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemark.protocol.schema import DecodeError, EncodeError, Span, array, codec, int32, message, span, string, struct


def encoded(value: Any, version: int) -> bytes:
    out = bytearray()
    codec(type(value), version).encode(value, out)
    return bytes(out)


def decoded(cls: type[Any], version: int, data: bytes) -> Any:
    return codec(cls, version).decode(memoryview(data))


def test_every_message_survives_a_round_trip(
    message_class: type[Any], each_version: Callable[..., None], make_message: Callable[..., Any]
) -> None:
    def check(version: int) -> None:
        for seed in range(100, 104):
            value = make_message(message_class, version, seed)
            assert decoded(message_class, version, encoded(value, version)) == value
        assert encoded(message_class(), version) == encoded(
            decoded(message_class, version, encoded(message_class(), version)), version
        )

    each_version(check)


def test_spans_are_read_in_kafkas_notation() -> None:
    assert span("3+") == Span(3, 32767)
    assert span("0-12") == Span(0, 12)
    assert span("7") == Span(7, 7)
    assert 0 not in span("")
    assert 8 in span("3+")
    assert 13 not in span("0-12")


def test_a_message_constructs_with_its_defaults() -> None:
    result = PartitionProduceResponse(index=3)
    assert (result.index, result.error_code, result.log_append_time_ms) == (3, 0, -1)
    assert result.record_errors == []
    assert result.record_errors is not PartitionProduceResponse().record_errors


def test_a_shared_default_refuses_to_be_changed() -> None:
    result = PartitionData()
    assert result.current_leader == LeaderIdAndEpoch()
    assert "LeaderIdAndEpoch(leader_id=-1" in repr(result)
    with pytest.raises(AttributeError, match="assign a new one"):
        result.current_leader.leader_id = 5
    assert PartitionData().current_leader.leader_id == -1


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        FetchPartition(no_such_field=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchPartition(no_such_field=1)  # type: ignore[call-arg]


def test_messages_compare_by_value_copy_and_pickle() -> None:
    one = FetchTopic(topic="a", partitions=[FetchPartition(partition=1)])
    assert one == FetchTopic(topic="a", partitions=[FetchPartition(partition=1)])
    assert one != FetchTopic(topic="a")
    assert one != "a"  # type: ignore[comparison-overlap]
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(TypeError):
        hash(one)


def test_a_version_that_is_not_declared_has_no_codec() -> None:
    with pytest.raises(ValueError, match="ProduceRequest has no version 2, only 3-13"):
        codec(ProduceRequest, 2)


def test_a_codec_is_made_once() -> None:
    assert codec(ProduceRequest, 9) is codec(ProduceRequest, 9)
    assert codec(ProduceRequest, 9).decode is codec(ProduceRequest, 9).decode
    with pytest.raises(AttributeError):
        _ = codec(ProduceRequest, 9).no_such_function


def test_a_codec_has_a_source_to_read() -> None:
    assert "def decode(buf, pos=0, surplus=False):" in source_of(ProduceRequest, 9, "decode")
    assert "def encode(msg, out):" in source_of(ProduceRequest, 9, "encode")


def test_byte_fields_are_views_of_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"12345")])]
    )
    frame = bytearray(encoded(request, 9))
    records = codec(ProduceRequest, 9).decode(memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("9")
    assert b"92345" in frame


def test_decoding_starts_where_it_is_told() -> None:
    frame = memoryview(b"header" + encoded(MetadataRequest(topics=None), 12))
    assert codec(MetadataRequest, 12).decode(frame, 6) == MetadataRequest(topics=None)


def test_bytes_left_over_are_refused() -> None:
    # In a request they are let pass: see the dispatcher.
    with pytest.raises(DecodeError, match="1 bytes left over"):
        decoded(MetadataRequest, 12, encoded(MetadataRequest(), 12) + b"\0")


def test_null_is_refused_where_a_version_has_none() -> None:
    assert decoded(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(DecodeError):
        decoded(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(EncodeError, match=r"MetadataRequest\.topics: null .*version 0"):
        encoded(MetadataRequest(topics=None), 0)
    with pytest.raises(EncodeError, match=r"MetadataRequest\.topics\[1\]\.name: null"):
        encoded(MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name=None)]), 1)


# -- tagged fields --------------------------------------------------------------------------------------------------


def api_versions_request(tags: bytes) -> bytes:
    return b"\x02a\x02b" + tags


def test_unknown_tags_are_skipped() -> None:
    data = api_versions_request(b"\x02" + b"\x05\x03xyz" + b"\x86\x01\x00")
    assert decoded(ApiVersionsRequest, 3, data).client_software_version == "b"


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x02" + b"\x05\x00" + b"\x05\x00", id="twice"),
        pytest.param(b"\x02" + b"\x05\x00" + b"\x04\x00", id="descending"),
        pytest.param(b"\x01" + b"\x05\x04xyz", id="longer than the frame"),
        pytest.param(b"\x02" + b"\x05\x00", id="fewer than counted"),
        pytest.param(b"\xff\xff\xff\xff\x0f", id="four billion"),
        pytest.param(b"\xff\xff\xff\xff\xff\x0f", id="varint of six bytes"),
        pytest.param(b"\xff\xff\xff\xff\x1f", id="varint beyond 32 bits"),
    ],
)
def test_bad_tags_are_refused(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(ApiVersionsRequest, 3, api_versions_request(tags))


def api_versions_response(tags: bytes) -> bytes:
    return b"\0\0" + b"\x01" + b"\0\0\0\0" + tags


def test_known_tags_are_read_between_unknown_ones() -> None:
    data = api_versions_response(b"\x03" + b"\x01\x08" + bytes(7) + b"\x09" + b"\x03\x01\x01" + b"\x63\x01?")
    response = decoded(ApiVersionsResponse, 3, data)
    assert response.finalized_features_epoch == 9
    assert response.zk_migration_ready is True


def test_a_known_tag_must_be_as_long_as_it_says() -> None:
    assert decoded(ApiVersionsResponse, 3, api_versions_response(b"\x01\x03\x01\x01")).zk_migration_ready
    for tags in (b"\x01\x03\x02\x01\x00", b"\x01\x03\x00", b"\x01\x01\x07" + bytes(7)):
        with pytest.raises(DecodeError):
            decoded(ApiVersionsResponse, 3, api_versions_response(tags))


def test_default_values_of_tagged_fields_are_not_written() -> None:
    equal_to_default = PartitionData(current_leader=LeaderIdAndEpoch())
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[equal_to_default])])
    usual = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    assert encoded(response, 13) == encoded(usual, 13)


# -- values that do not fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (ProduceRequest(acks=1 << 15), "ProduceRequest.acks: 32768 is no int16"),
        (ProduceRequest(acks="all"), "ProduceRequest.acks: 'all' is no int16"),  # type: ignore[arg-type]
        (ProduceRequest(transactional_id="x" * 40_000), "transactional_id: string of 40000 bytes"),
        (ProduceRequest(transactional_id="\ud800"), "transactional_id: .*surrogates not allowed"),
        (ProduceRequest(transactional_id=5), "transactional_id: expected a string, got 5"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=7), "topic_data: expected a list"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=["x"]), r"topic_data\[0\]: expected TopicProduceData"),  # type: ignore[list-item]
        (ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")]), r"topic_data\[0\].topic_id: a uuid is 16"),
    ],
)
def test_a_value_that_does_not_fit_is_named(bad: ProduceRequest, complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        encoded(bad, 13)


def test_old_strings_are_bounded_too() -> None:
    with pytest.raises(EncodeError, match=r"topics\[0\]\.name: string of 32768 bytes"):
        encoded(CreateTopicsRequest(topics=[CreatableTopic(name="x" * 32768)]), 2)
    longest = CreateTopicsRequest(topics=[CreatableTopic(name="x" * 32767)])
    for version in (2, 7):
        assert decoded(CreateTopicsRequest, version, encoded(longest, version)) == longest


def test_a_compact_string_longer_than_kafka_allows_is_refused() -> None:
    with pytest.raises(DecodeError, match="string of 32768 bytes"):
        decoded(ApiVersionsRequest, 3, b"\x81\x80\x02" + b"x" * 32768 + b"\x01\0")


# -- parts ----------------------------------------------------------------------------------------------------------


class FileRange:
    def __init__(self, length: int) -> None:
        self.length = length


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=value) for index, value in enumerate(records)]
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", range(4, 19))
def test_parts_joined_are_the_whole_message(version: int) -> None:
    data = [b"a" * 61, None, b"", b"b" * 200, b"c" * 20_000]
    sliced: list[Any] = [FileRange(61), None, [], [FileRange(150), FileRange(50)], memoryview(data[4] or b"")]
    parts = codec(FetchResponse, version).encode_parts(fetch_response(*sliced), bytearray(b"head"))
    contents = iter([b"a" * 61, b"b" * 150, b"b" * 50])
    joined = b"".join(next(contents) if isinstance(part, FileRange) else bytes(part) for part in parts)
    assert joined == b"head" + encoded(fetch_response(*data), version)
    assert [part.length for part in parts if isinstance(part, FileRange)] == [61, 150, 50]


def test_parts_of_a_message_without_records_are_one() -> None:
    out = bytearray(b"head")
    parts = codec(ProduceResponse, 9).encode_parts(ProduceResponse(), out)
    assert len(parts) == 1
    assert parts[0] is out


# -- declarations of our own ----------------------------------------------------------------------------------------


@struct
class Hollow:
    since_two: int = int32("2+")


@message(key=999, versions="0-2")
class Shell:
    hollows: list[Hollow] = array(Hollow)
    name: str = string("1+")


def test_elements_without_size_are_no_loop_bomb() -> None:
    with pytest.raises(DecodeError, match="array of 2147483647"):
        decoded(Shell, 0, b"\x7f\xff\xff\xff")
    assert len(decoded(Shell, 2, b"\0\0\0\1" + b"\0\0\0\5" + b"\0\0").hollows) == 1
