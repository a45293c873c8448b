"""The table of replicas: look-ups, and settings that belong to one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.replication.replica_table import EXPIRED, ReplicaTable
from tidemark.protocol.errors import ErrorCode

New = Callable[..., Any]


def table(tmp_path: Path, **settings: str) -> ReplicaTable:
    config = load_config(overrides={"node.id": "1", "log.dirs": str(tmp_path), **settings})
    return ReplicaTable(node_id=1, config=config, directories=[], now_ms=lambda: 0)


def test_two_tables_in_one_process_have_settings_of_their_own(tmp_path: Path) -> None:
    first = table(tmp_path, **{"replica.lag.time.max.ms": "400"})
    second = table(tmp_path, **{"replica.lag.time.max.ms": "9000"})
    assert (first.lag_seconds_max(), second.lag_seconds_max()) == (0.4, 9.0)


async def test_two_nodes_in_one_process_lead_by_settings_of_their_own(new_cluster: New) -> None:
    first = new_cluster(nodes=1, **{"replica.lag.time.max.ms": "400"})
    partition = first.led(1)
    other = load_config(overrides={"node.id": "2", "log.dirs": "unused", "replica.lag.time.max.ms": "9000"})
    ReplicaTable(node_id=2, config=other, directories=[], now_ms=lambda: 0)
    assert partition._lag_seconds_max() == 0.4


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_a_look_up_says_why_this_node_does_not_lead(
    new_cluster: New, topic: str, index: int, code: ErrorCode
) -> None:
    cluster = new_cluster(nodes=2)
    with pytest.raises(Refused) as refused:
        cluster.nodes[2].table.leader_of(topic, index)
    assert refused.value.code == code


async def test_without_a_lease_nothing_is_led(new_cluster: New) -> None:
    cluster = new_cluster(nodes=1)
    assert cluster.nodes[1].table.leader_of("t", 0) is cluster.led(1)
    cluster.nodes[1].table.lease_until = EXPIRED
    with pytest.raises(Refused) as refused:
        cluster.nodes[1].table.leader_of("t", 0)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
