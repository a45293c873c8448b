"""A voter's metadata is on a disk that is lost. Nobody may take the node for the voter that it was; an operator takes its
vote, lets it in again, and gives the vote back (docs/cluster.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from cluster_simulation.administrator import WORTH_ANOTHER_TRY
from cluster_simulation.history import Anomaly
from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tidemark.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tidemark.simulation import Broker, Cluster
from tidemark.simulation.client import RETRY_SECONDS, KafkaClient

OPERATOR: Final = "operator"
CONTROLLER_PORT: Final = 9093
REFUSED_SECONDS: Final = 5.0


def replace_metadata(cluster: Cluster, broker: Broker) -> None:
    if not operators_are_done(cluster):
        return  # one disk at a time
    broker.kill()
    broker.machine.disk.replace(f"/{broker.name}/metadata")
    operator = cluster.new_client(f"{OPERATOR}-{len(cluster.clients)}")
    operator.spawn(_bring_back(cluster, broker), name=OPERATOR)


def operators_are_done(cluster: Cluster) -> bool:
    return all(task.done() for each in cluster.clients if each.machine.name.startswith(OPERATOR) for task in each.tasks)


async def _bring_back(cluster: Cluster, broker: Broker) -> None:
    client = KafkaClient(cluster.bootstrap, client_id=OPERATOR)
    cluster.world.after(0, broker.start)
    until = monotonic() + REFUSED_SECONDS
    while monotonic() < until:
        if _takes_part(broker):
            cluster.world.after(0, lambda: _raise(f"{broker.name} has lost its metadata, and is taken for a voter"))
            return
        await asyncio.sleep(RETRY_SECONDS)
    broker.may_start = False
    cluster.world.after(0, broker.kill)
    await asyncio.sleep(RETRY_SECONDS)
    await _until_done(client, broker, gives=False)
    cluster.world.after(0, lambda: _let_in(broker))
    while not broker.is_ready:
        await asyncio.sleep(RETRY_SECONDS)
    await _until_done(client, broker, gives=True)


def _takes_part(broker: Broker) -> bool:
    """Whether it has heard of a term, and so may vote in it."""
    store = getattr(broker.node, "_store", None)
    return (
        broker.is_running
        and store is not None
        and store.driver is not None
        and store.driver._loop is broker.process.loop  # type: ignore[union-attr]
        and store.driver.node.term > 0
    )


def _let_in(broker: Broker) -> None:
    """As `tidemark format` does."""
    broker.machine.switch_on()
    process = broker.machine.start_process()
    directory = Path(f"/{broker.name}/metadata/tidemark-metadata")
    process.call(lambda: MetadataDirectory(directory).allow_rejoining())
    broker.machine.kill_process()
    broker.may_start = True
    broker.start()


async def _until_done(client: KafkaClient, broker: Broker, *, gives: bool) -> None:
    while True:
        if gives:
            listener = Listener(name="CONTROLLER", host=broker.name, port=CONTROLLER_PORT)
            request = AddRaftVoterRequest(voter_id=broker.node_id, listeners=[listener], timeout_ms=4000)
            code = (await client.ask_any(request, AddRaftVoterResponse, version=0)).error_code
        else:
            asked = RemoveRaftVoterRequest(voter_id=broker.node_id)
            code = (await client.ask_any(asked, RemoveRaftVoterResponse, version=0)).error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER if gives else ErrorCode.VOTER_NOT_FOUND):
            return
        assert code in WORTH_ANOTHER_TRY, ErrorCode(code).name
        await asyncio.sleep(RETRY_SECONDS)


def _raise(what: str) -> None:
    raise Anomaly(what)
