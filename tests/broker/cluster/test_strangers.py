"""What a program that is no member can send to the controller listener of a running node: it changes nothing.

Over a real socket: each test fails if the check that it names is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tidemark.broker.cluster import quorum_membership
from tidemark.broker.metadata.features import SUPPORTED
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.protocol.messages.join_quorum import JoinQuorumRequest, JoinQuorumResponse
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.raft import NO_DIRECTORY
from tidemark.raft.codec import TERM_MAX, encode
from tidemark.raft.messages import AppendEntries

STRANGER = 77
LAST_TERM_THAT_FITS = (1 << 64) - 1
PLAUSIBLE_TERM = 1000


def append_entries(*, sender: int, term: int) -> bytes:
    return encode(AppendEntries(sender=sender, term=term, prev_index=0, prev_term=0, commit_index=0, round=1))


@pytest.fixture
async def quorum(nodes: Any) -> Any:
    """Three nodes whose directories the quorum knows."""
    await nodes.start()
    driver = nodes.running[nodes.controller]._store.driver
    await nodes.until(lambda: all(any(each.directory_id) for each in driver.node.configuration.members))
    await nodes.until(lambda: len({configuration_of(nodes, each) for each in nodes.voters}) == 1)
    return nodes


def configuration_of(nodes: Any, node_id: int) -> Any:
    return nodes.running[node_id]._store.driver.node.configuration


Dial = Callable[[int], Awaitable[Any]]


@pytest.fixture
def dial(nodes: Any, connect: Any) -> Dial:
    """A connection to a node's controller listener, as any program can make one."""

    class Listener:
        def __init__(self, node_id: int) -> None:
            self.address = ("127.0.0.1", nodes.own_ports[node_id])

    return lambda node_id: connect(Listener(node_id))


async def deliver(dial: Dial, node_id: int, message: RaftMessageRequest) -> None:
    """Returns when the node has taken note of the message: it answers what comes after it on the connection."""
    client = await dial(node_id)
    client.send(message, 0)
    await client.call(JoinQuorumRequest(node_id=node_id, cluster_id="no such"), JoinQuorumResponse, 0)


async def still_decides(nodes: Any, ask: Any) -> None:
    wish = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    answer = await ask(nodes.another, CreateTopicsRequest(topics=[wish], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == ErrorCode.NONE


def terms(nodes: Any) -> list[int]:
    return [nodes.running[each]._store.driver.node.term for each in nodes.voters]


def as_member(nodes: Any, sender: int, receiver: int, *, term: int, **fields: Any) -> RaftMessageRequest:
    """With the ids of a member, but for what is said here."""
    configuration = configuration_of(nodes, receiver)
    known = {
        "cluster_id": nodes.image(receiver).cluster_id,
        "sender_directory_id": configuration.member(sender).directory_id,
        "receiver_directory_id": configuration.member(receiver).directory_id,
    }
    return RaftMessageRequest(sender=sender, data=append_entries(sender=sender, term=term), **{**known, **fields})


def as_stranger(term: int) -> RaftMessageRequest:
    """The packet that ended a cluster for good."""
    return RaftMessageRequest(sender=STRANGER, data=append_entries(sender=STRANGER, term=term))


async def test_messages_that_no_member_has_sent_change_no_term_and_no_leader(quorum: Any, dial: Dial, ask: Any) -> None:
    before, receiver, sender = terms(quorum), quorum.controller, quorum.another
    message = partial(as_member, quorum, sender, receiver)
    foreign = {
        "a stranger, the last term that fits": as_stranger(LAST_TERM_THAT_FITS),
        "a stranger, the last term that can be written": as_stranger(TERM_MAX),
        "a stranger, a term as any other": as_stranger(PLAUSIBLE_TERM),
        "a member, the last term that fits": message(term=LAST_TERM_THAT_FITS),
        "a member, a term that elections cannot have reached": message(term=TERM_MAX),
        "another cluster with a wrong address": message(term=PLAUSIBLE_TERM, cluster_id="another-cluster"),
        "a member whose disk was replaced": message(term=PLAUSIBLE_TERM, sender_directory_id=b"x" * 16),
        "to a member whose disk was replaced": message(term=PLAUSIBLE_TERM, receiver_directory_id=b"x" * 16),
    }
    for what, each in foreign.items():
        await deliver(dial, receiver, each)
        assert terms(quorum) == before, what
        assert quorum.controller == receiver, what
    await still_decides(quorum, ask)
    # Or all of this would pass for another reason.
    await deliver(dial, receiver, message(term=PLAUSIBLE_TERM))
    assert quorum.running[receiver]._store.driver.node.term >= PLAUSIBLE_TERM


async def test_a_dropped_message_is_logged_with_the_reason(
    quorum: Any, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    await deliver(dial, quorum.controller, as_stranger(LAST_TERM_THAT_FITS))
    assert "dropped a message of the quorum: from node 77: its sender is no member of the quorum" in caplog.text


async def test_a_live_voters_address_is_not_rewritten_for_another_process_with_its_id(quorum: Any, dial: Dial) -> None:
    before = configuration_of(quorum, quorum.controller)
    for victim in quorum.voters:
        for directory_id in (NO_DIRECTORY, b"x" * 16):
            answer = await join(quorum, dial, victim, directory_id=directory_id)
            assert answer.error_code == ErrorCode.INVALID_VOTER_KEY
    assert configuration_of(quorum, quorum.controller) == before


async def test_the_controllers_address_is_not_rewritten_in_a_quorum_without_directory_ids(
    nodes: Any, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade, before its level is raised: the controller knows at least its own directory."""
    monkeypatch.setattr(quorum_membership, "may_write_directory_ids", lambda _image: False)
    await nodes.start()
    await nodes.until(lambda: nodes.running[nodes.controller]._store.driver.node.configuration_index)
    before = configuration_of(nodes, nodes.controller)
    answer = await join(nodes, dial, nodes.controller, directory_id=b"x" * 16)
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert configuration_of(nodes, nodes.controller) == before


async def test_a_live_brokers_address_is_not_rewritten_for_another_process_with_its_id(quorum: Any, dial: Dial) -> None:
    """It has no vote: after its end, another process may take its place with an empty disk."""
    await quorum.start(4)
    await quorum.until(lambda: configuration_of(quorum, quorum.controller).learners == (4,))
    before = configuration_of(quorum, quorum.controller)
    answer = await join(quorum, dial, 4, directory_id=b"x" * 16)
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert configuration_of(quorum, quorum.controller) == before
    await quorum.stop(4)
    async with asyncio.timeout(20):
        while (await join(quorum, dial, 4, directory_id=b"x" * 16)).error_code != ErrorCode.NONE:
            await asyncio.sleep(0.05)


async def test_neither_a_node_of_another_cluster_nor_a_second_process_of_a_broker_gets_in(
    quorum: Any, dial: Dial
) -> None:
    answer = await join(quorum, dial, STRANGER, directory_id=b"x" * 16, cluster_id="another-cluster")
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert configuration_of(quorum, quorum.controller).member(STRANGER) is None
    victim, cluster_id = quorum.another, quorum.image(quorum.controller).cluster_id
    before = quorum.image(quorum.controller).brokers[victim]
    client = await dial(quorum.controller)
    features = [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED.items()
    ]
    request = BrokerRegistrationRequest(
        broker_id=victim, cluster_id=cluster_id, incarnation_id=b"x" * 16, features=features
    )
    registered = await client.call(request, BrokerRegistrationResponse, 4)
    assert registered.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert quorum.image(quorum.controller).brokers[victim] == before


async def join(nodes: Any, dial: Dial, node_id: int, *, directory_id: bytes, cluster_id: str = "") -> Any:
    """As another process with that id asks for it, which listens elsewhere."""
    client = await dial(nodes.controller)
    request = JoinQuorumRequest(
        node_id=node_id,
        cluster_id=cluster_id or nodes.image(nodes.controller).cluster_id,
        host="127.0.0.1",
        port=1,
        directory_id=directory_id,
    )
    return await client.call(request, JoinQuorumResponse, 0)
