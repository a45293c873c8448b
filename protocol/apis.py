"""The APIs that we have messages for, by key. What a broker serves of them is for its handlers to say.

Versions are not repeated here: a message class declares its own. Classes are imported when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from tidemark.protocol.schema import Span, api


class ApiEntry(NamedTuple):
    key: int
    name: str

    @property
    def module(self) -> str:
        return "tidemark.protocol.messages." + re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    @property
    def request(self) -> type[Any]:
        found: type[Any] = getattr(import_module(self.module), self.name + "Request")
        return found

    @property
    def response(self) -> type[Any]:
        found: type[Any] = getattr(import_module(self.module), self.name + "Response")
        return found

    @property
    def versions(self) -> Span:
        return api(self.request).versions


APIS: Final[Mapping[int, ApiEntry]] = {
    key: ApiEntry(key, name)
    for key, name in {
        0: "Produce",
        1: "Fetch",
        2: "ListOffsets",
        3: "Metadata",
        8: "OffsetCommit",
        9: "OffsetFetch",
        10: "FindCoordinator",
        11: "JoinGroup",
        12: "Heartbeat",
        13: "LeaveGroup",
        14: "SyncGroup",
        15: "DescribeGroups",
        16: "ListGroups",
        18: "ApiVersions",
        19: "CreateTopics",
        20: "DeleteTopics",
        21: "DeleteRecords",
        22: "InitProducerId",
        23: "OffsetForLeaderEpoch",
        24: "AddPartitionsToTxn",
        25: "AddOffsetsToTxn",
        26: "EndTxn",
        27: "WriteTxnMarkers",
        28: "TxnOffsetCommit",
        32: "DescribeConfigs",
        33: "AlterConfigs",
        35: "DescribeLogDirs",
        37: "CreatePartitions",
        42: "DeleteGroups",
        43: "ElectLeaders",
        44: "IncrementalAlterConfigs",
        45: "AlterPartitionReassignments",
        46: "ListPartitionReassignments",
        47: "OffsetDelete",
        55: "DescribeQuorum",
        56: "AlterPartition",
        57: "UpdateFeatures",
        60: "DescribeCluster",
        61: "DescribeProducers",
        62: "BrokerRegistration",
        63: "BrokerHeartbeat",
        64: "UnregisterBroker",
        65: "DescribeTransactions",
        66: "ListTransactions",
        67: "AllocateProducerIds",
        68: "ConsumerGroupHeartbeat",
        69: "ConsumerGroupDescribe",
        74: "ListConfigResources",
        75: "DescribeTopicPartitions",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
    }.items()
}


def first_flexible(keys: Iterable[int] = APIS) -> dict[int, int]:
    """For `read_request_header`: from which version on each API's requests have tagged fields."""
    return {key: api(APIS[key].request).flexible.first for key in keys}
