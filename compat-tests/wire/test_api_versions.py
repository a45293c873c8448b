"""What is advertised is served, in Apache Kafka's own ranges, and nothing else is advertised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.wire import Wire, header

# Names and ranges as Apache Kafka 4.3.1 gives them.
SERVED = {
    0: ("Produce", 0, 13),
    1: ("Fetch", 4, 18),
    2: ("ListOffsets", 1, 11),
    3: ("Metadata", 0, 13),
    18: ("ApiVersions", 0, 4),
    19: ("CreateTopics", 2, 7),
    20: ("DeleteTopics", 1, 6),
    21: ("DeleteRecords", 0, 2),
    22: ("InitProducerId", 0, 5),
    23: ("OffsetForLeaderEpoch", 2, 4),
    32: ("DescribeConfigs", 1, 4),
    33: ("AlterConfigs", 0, 2),
    35: ("DescribeLogDirs", 1, 5),
    37: ("CreatePartitions", 0, 3),
    44: ("IncrementalAlterConfigs", 0, 1),
    60: ("DescribeCluster", 0, 2),
    61: ("DescribeProducers", 0, 0),
    74: ("ListConfigResources", 0, 1),
    75: ("DescribeTopicPartitions", 0, 0),
}


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_lists_the_same(wire: Wire, version: int) -> None:
    answer = wire.call("ApiVersions", version, client_software_name="wire-test", client_software_version="1")
    assert answer.error_code == 0
    listed = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    expected = {key: (low, high) for key, (_, low, high) in SERVED.items()}
    assert {key: listed.get(key) for key in expected} == expected


# What else Apache Kafka offers to clients: an API that arrives later may be listed within these ranges only.
OTHERS = {
    8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5),
    17: (0, 1), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    34: (1, 2), 36: (0, 2), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 64: (0, 0),
    65: (0, 0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2), 80: (0, 1),
    81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1), 88: (0, 0), 89: (0, 0), 90: (0, 1),
    91: (0, 0), 92: (0, 0),
}  # fmt: skip


def test_nothing_is_advertised_beyond_apache_kafkas_ranges(wire: Wire) -> None:
    known = OTHERS | {key: (low, high) for key, (_, low, high) in SERVED.items()}
    for api in wire.call("ApiVersions", 0).api_keys:
        low, high = known[api.api_key]
        assert low <= api.min_version <= api.max_version <= high, api


def test_keys_that_are_not_advertised_close_the_connection(wire: Wire, connect: Callable[..., Wire]) -> None:
    listed = {api.api_key for api in wire.call("ApiVersions", 0).api_keys}
    for key in {4, 5, 6, 7, 56, 58, 62, 999, *OTHERS} - listed:
        asking = connect()
        asking.send_frame(header(key, 0, 1))
        assert asking.is_closed_by_broker()
