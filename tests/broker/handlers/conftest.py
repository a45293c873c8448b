"""Requests to brokers in the test's own process, on the way that every client's requests take.

`shared` is a connection to a broker that all tests of this folder share: what a test makes there (`topic`, `groups`,
`txn`) has a name of its own. `idle` leads to one that coordinates nothing, `loading` to one that still loads its groups
and transactions. `node` and `client` are a broker of the test's own, for what a shared one would not stand. `cluster`
has a controller listener, and brokers that the test registers.

A test that takes `version` runs once for each version of the API that its file is named after.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from group_members import Groups
from registered_brokers import OneNodeCluster
from shared_broker import SharedBroker
from token_users import SECURE, client_of
from transactional_client import Transactional

from tidemark.protocol.apis import apis

FEW_PARTITIONS = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
}


def unique(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:12]}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "version" in metafunc.fixturenames and not any("version" in names for names in named):
        module = metafunc.definition.path.stem.removeprefix("test_")
        (versions,) = (entry.versions for entry in apis().values() if entry.module == module)
        metafunc.parametrize("version", range(versions.first, versions.last + 1))


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    with SharedBroker(tmp_path_factory.mktemp("shared"), **FEW_PARTITIONS) as broker:
        yield broker


@pytest.fixture
async def shared(shared_broker: SharedBroker, connect: Any) -> Any:
    return await connect(shared_broker)


@pytest.fixture(scope="session")
def idle_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    with SharedBroker(tmp_path_factory.mktemp("idle"), **FEW_PARTITIONS) as broker:
        yield broker


@pytest.fixture
async def idle(idle_broker: SharedBroker, connect: Any) -> Any:
    return await connect(idle_broker)


@pytest.fixture(scope="session")
def loading_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    with SharedBroker(tmp_path_factory.mktemp("loading"), **FEW_PARTITIONS) as broker:
        for coordinator in (broker.node._coordinators.groups, broker.node._coordinators.transactions):
            broker.run(coordinator.leader_of("any"))
            for hosted in coordinator:
                hosted.is_loading = True
        yield broker


@pytest.fixture
async def loading(loading_broker: SharedBroker, connect: Any) -> Any:
    return await connect(loading_broker)


@pytest.fixture
async def topic(shared: Any) -> str:
    """A topic with three partitions on the shared broker."""
    topic = unique("topic")
    await shared.create(topic, 3)
    return topic


@pytest.fixture
async def groups(shared: Any, topic: str) -> Groups:
    """A group coordinator that has loaded, with a topic and the name of a group for this test."""
    groups = Groups(shared, topic=topic, group=unique("group"))
    await groups.prepare()
    return groups


@pytest.fixture
async def txn(shared: Any, topic: str) -> Transactional:
    """Both coordinators, with a topic and the name of a group for this test."""
    txn = Transactional(shared, topic=topic, group=unique("group"))
    await txn.prepare()
    return txn


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for a transactional id."""
    return unique("name")


# -- brokers of the test's own -------------------------------------------


@pytest.fixture
async def node(start_node: Any) -> Any:
    return await start_node(**FEW_PARTITIONS)


@pytest.fixture
async def client(node: Any, connect: Any) -> Any:
    return await connect(node)


@pytest.fixture
async def cluster(start_node: Any, connect: Any) -> AsyncIterator[OneNodeCluster]:
    """Node 1 with a controller listener. Other brokers are registered by the test."""
    cluster = OneNodeCluster()
    await cluster.start(start_node, connect, **FEW_PARTITIONS)
    yield cluster
    cluster.close()


@pytest.fixture
async def log_in_as(start_node: Any, connect: Any) -> Any:
    """A client for each user that is named, of one broker that gives out delegation tokens."""
    node = await start_node(**SECURE)
    return partial(client_of, node, connect)
