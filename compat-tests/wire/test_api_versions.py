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


def test_nothing_is_advertised_that_closes_the_connection(
    wire: Wire, connect: Callable[..., Wire], is_control: bool
) -> None:
    """Each key outside the table above must be one this suite has not learnt yet, not one that only pretends."""
    listed = {api.api_key for api in wire.call("ApiVersions", 0).api_keys}
    if not is_control:
        assert listed <= set(SERVED), "tell this table what else is served"
    for key in {4, 5, 6, 7, 56, 999} - listed:
        asking = connect()
        asking.send_frame(header(key, 0, 1))
        assert asking.is_closed_by_broker()
