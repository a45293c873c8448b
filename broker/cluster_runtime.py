"""A node among others: the quorum, the controller, and this broker's membership, put together.

A node without a controller listener is run by `StandaloneRuntime` instead, and does not load this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidemark.broker.cluster.broker_membership import BrokerMembership
from tidemark.broker.cluster.forwarding import Forwarding
from tidemark.broker.cluster.identity import NodeIdentity, random_id
from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.cluster.placements import Place, Placements, placement_request
from tidemark.broker.cluster.quorum_membership import QuorumMembership
from tidemark.broker.cluster.suspected_brokers import SuspectedBrokers
from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.controller.controller import Controller
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.metadata import directories
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.producer_ids import reserve
from tidemark.broker.metadata.records import Endpoint
from tidemark.broker.peers import Connectors, PeerUnavailable
from tidemark.broker.replication.replicas import Replicas
from tidemark.broker.server.dispatch import Dispatcher
from tidemark.broker.server.server import Server
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidemark.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from tidemark.raft import RaftError
from tidemark.storage import clean_broker_epoch

log = logging.getLogger(__name__)

HAND_OVER_SECONDS_MAX: Final = 1.0
REQUEST_SECONDS_MAX: Final = 5.0
RETRY_SECONDS: Final = 0.05

Services = dict[str, Callable[[], Any]]
Guarded = Callable[[Listener, Dispatcher], Callable[[Any, bytearray], None]]


class ClusterRuntime:
    def __init__(
        self,
        config: BrokerConfig,
        directory: Path,
        *,
        settings: DynamicConfig,
        identity: NodeIdentity,
        replicas: Replicas,
        services: Services,
        endpoints: Callable[[], Sequence[Endpoint]],
        failed: Callable[[BaseException], None],
        connectors: Connectors | None = None,
    ) -> None:
        """`connectors`: for listeners that are not plain. `services`: what handlers may name; the node fills it before
        it takes requests."""
        self._config = config
        self._replicas = replicas
        self._metadata_directory = MetadataDirectory(directory)
        if identity.is_formatted and not self._metadata_directory.holds_metadata:
            self._metadata_directory.check_new(node_id=config.node_id, cluster_id=identity.cluster_id)
        self.quorum = QuorumMembership(
            config,
            self._metadata_directory,
            cluster_id=lambda: identity.cluster_id,
            broker_lost=self._broker_lost,
            failed=failed,
            connectors=connectors,
        )
        self.store = self.quorum.store
        self.peers = self.quorum.peers
        self.controller = Controller(
            self.store,
            settings,
            new_cluster_id=lambda: identity.cluster_id or random_id(),
            probe=lambda broker_id: self.suspected_brokers.probe(broker_id),
            first_records=lambda: self._metadata_directory.first_records,
        )
        self.suspected_brokers = SuspectedBrokers(
            listener=config.parsed_inter_broker_listener_name,
            image=lambda: self.store.image,
            report_gone=self.controller.fence_gone,
        )
        self.store.watch(self.suspected_brokers.follow)
        self.membership = BrokerMembership(
            store=self.store,
            peers=self.peers,
            settings=settings,
            endpoints=endpoints,
            cluster_id=lambda: identity.cluster_id,
            renew_lease=self._renew_lease,
            is_behind=lambda: replicas.roles.is_behind,
            stalled_seconds=lambda: self.store.driver.stalled_seconds,
            previous_epoch=clean_broker_epoch(replicas.table.directories),
            log_dirs=lambda: [each.id for each in replicas.table.directories],
            offline_log_dirs=lambda: replicas.failures.failed_ids,
        )
        replicas.failures.on_failure = self.membership.tell_soon
        self.placements = Placements(
            replicas.table, may_tell=lambda: directories.may_write(self.store.image), tell=self._tell_placements
        )
        replicas.roles.placed = self.placements.note
        self.view = ClusterView(
            self.store,
            node_id=config.node_id,
            suspected_brokers=self.suspected_brokers,
            is_leased=lambda: replicas.table.is_leased,
            is_isolated=lambda: self.quorum.is_isolated,
        )
        self.forwarding = Forwarding(self.store, self.peers, services)

    def services(self) -> Services:
        """What handlers may name beside what there is on every node."""
        return {
            "controller": lambda: self.controller,
            "forwarding": lambda: self.forwarding,
            "quorum": lambda: self.quorum,
        }

    def _renew_lease(self, until: float) -> None:
        table = self._replicas.table
        if table.lease_until and table.lease_until < (now := lease_clock()) < until:
            log.warning("this node was without a lease for %.1f s: its heartbeats were late", now - table.lease_until)
        table.lease_until = until

    def _broker_lost(self, broker_id: int) -> None:
        self.suspected_brokers.suspect(broker_id)

    # -- joining and leaving -----------------------------------------------

    async def join(self, server: Server, services: Mapping[str, Callable[[], Any]], guarded: Guarded) -> None:
        """Returns when this broker is registered, and has the metadata up to that moment. `guarded`: what handles the
        requests of a listener that a dispatcher is behind."""
        listener = self._config.parsed_controller_listener
        assert listener is not None
        handle = guarded(listener, Dispatcher(services, "controller"))
        await server.listen(
            listener, handle=handle, lost=lambda connection: self.quorum.connection_closed(connection.client_id)
        )
        await server.serve(listener.name)
        await self.quorum.start()
        await self.quorum.unless_refused(self.membership.register())
        self._metadata_directory.rejoined()
        self._metadata_directory.forget_first_records()

    def start_replication(self) -> None:
        """Follow others, and be followed. From here on nothing is served without a lease."""
        self._replicas.start_replication(self.peers)

    async def unfence(self) -> None:
        """Send heartbeats; returns when the controller has unfenced this broker, and this node knows it."""
        self.membership.start()
        await self.membership.unfenced()

    async def leave(self) -> None:
        """Before anything is stopped: let others lead what this node leads."""
        if self._config.controlled_shutdown_enable:
            await self.membership.shut_down()
        await self._hand_over()
        self.forwarding.stop_waiting()

    async def _hand_over(self) -> None:
        driver = self.store.driver
        if not driver.node.is_leader:
            return
        others = [
            each
            for each in driver.node.replicas()
            if each.member.is_voter and each.member.node_id != self._config.node_id
        ]
        if not others:
            return
        successor = max(others, key=lambda each: (each.match_index, each.heard_at)).member.node_id
        changed = asyncio.Event()
        self.store.watch_leader(changed.set)
        with contextlib.suppress(TimeoutError, RaftError):
            driver.transfer_leadership(successor)
            async with asyncio.timeout(HAND_OVER_SECONDS_MAX):
                await changed.wait()

    @property
    def broker_epoch(self) -> int:
        """Of this life; of the last one, until this node is registered."""
        return self.membership.broker_epoch

    async def _tell_placements(self, found: Mapping[bytes, Sequence[Place]]) -> None:
        request = placement_request(found, broker_id=self._config.node_id, broker_epoch=self.broker_epoch)
        link = self.peers.to_controller(purpose="forwarding")
        answer = await link.send(request, version=0, timeout=REQUEST_SECONDS_MAX, response=AssignReplicasToDirsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise PeerUnavailable(f"the controller refuses: {ErrorCode(answer.error_code).name}")

    async def close(self) -> None:
        await self.placements.close()
        self.controller.close()
        self.suspected_brokers.close()
        await self.membership.close()
        await self.quorum.close()

    # -- producer ids ------------------------------------------------------

    async def allocate_producer_ids(self) -> int:
        deadline = monotonic() + REQUEST_SECONDS_MAX
        while True:
            try:
                if self.store.is_controller:
                    return await reserve(self.store)
                return await self._ask_for_producer_ids()
            except (Refused, PeerUnavailable) as error:
                if monotonic() > deadline:
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                    raise Refused(code, f"No controller gave producer ids: {error}") from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _ask_for_producer_ids(self) -> int:
        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self.membership.broker_epoch)
        link = self.peers.to_controller(purpose="forwarding")
        answer = await link.send(request, version=0, timeout=REQUEST_SECONDS_MAX, response=AllocateProducerIdsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise Refused(ErrorCode(answer.error_code), "The controller gave no producer ids.")
        return answer.producer_id_start
