from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_cluster import DescribeClusterRequest
from tidemark.protocol.messages.metadata import MetadataRequest

BROKERS, CONTROLLERS = 1, 2
ENDPOINT_TYPES_FROM = 1
FENCED_FROM = 2


async def test_the_cluster_is_described_as_in_metadata(shared: Any, shared_broker: Any, version: int) -> None:
    metadata = await shared.ask(MetadataRequest(topics=[]), 12)
    answer = await shared.ask(DescribeClusterRequest(), version)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.cluster_id, answer.controller_id) == (metadata.cluster_id, metadata.controller_id)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (metadata.brokers[0].node_id, *shared_broker.address)
    assert (broker.is_fenced, answer.endpoint_type) == (False, BROKERS)


async def test_authorized_operations_are_returned_when_asked_for(shared: Any, version: int) -> None:
    silent = await shared.ask(DescribeClusterRequest(), version)
    assert silent.cluster_authorized_operations == -(2**31)
    told = await shared.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    create, alter, describe = 5, 7, 8
    assert all(told.cluster_authorized_operations >> bit & 1 for bit in (create, alter, describe))


@pytest.mark.parametrize("version", range(ENDPOINT_TYPES_FROM, 3))
@pytest.mark.parametrize(
    ("kind", "code"),
    [(CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (77, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_only_brokers_are_returned_to_clients(shared: Any, version: int, kind: int, code: ErrorCode) -> None:
    answer = await shared.ask(DescribeClusterRequest(endpoint_type=kind), version)
    assert (answer.error_code, answer.brokers) == (code, [])


async def test_controllers_are_returned_on_the_controllers_listener(cluster: Any) -> None:
    await cluster.join(2)
    for version in (1, 2):
        answer = await cluster.controller.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), version)
        assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, CONTROLLERS, 1)
        assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, *cluster.address)]
        mismatched = await cluster.controller.ask(DescribeClusterRequest(endpoint_type=BROKERS), version)
        assert mismatched.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_fenced_brokers_are_returned_only_when_asked_for(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.register(3)  # and so it is fenced
    for version in range(3):
        answer = await cluster.client.ask(DescribeClusterRequest(), version)
        assert sorted(each.broker_id for each in answer.brokers) == [1, 2]
    answer = await cluster.client.ask(DescribeClusterRequest(include_fenced_brokers=True), FENCED_FROM)
    assert {each.broker_id: each.is_fenced for each in answer.brokers} == {1: False, 2: False, 3: True}
