"""This node's place in the quorum that keeps the metadata: its members, their addresses, and how to join them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.metadata.features import may_write_directory_ids
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.peers import Address, Connectors, PeerLink, Peers, PeerUnavailable, node_id_of
from tidemark.broker.peers.raft_identity import QuorumIdentity
from tidemark.broker.peers.raft_transport import QuorumTransport, addresses_of, detail_of, member_of
from tidemark.environment import current, monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_quorum import JoinQuorumRequest, JoinQuorumResponse
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.raft import (
    NO_DIRECTORY,
    ChangePending,
    Configuration,
    LeadershipLost,
    Member,
    NotCaughtUp,
    RaftError,
    RaftSettings,
    UnknownMember,
)

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1
REQUEST_SECONDS_MAX: Final = 2.0
CHANGE_SECONDS_MAX: Final = 5.0  # how long a change of the voters waits for the one before it
WATCH_SECONDS: Final = 0.5
LEADERLESS_SECONDS_MAX: Final = 2.0  # by then a quorum that works has elected a leader
ISOLATED_SECONDS: Final = 2.0  # members say something several times per second, a leader or not
FATAL: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_VOTER_KEY)
WILD: Final = ("", "0.0.0.0", "::")


class QuorumMembership:
    def __init__(
        self,
        config: BrokerConfig,
        directory: MetadataDirectory,
        *,
        cluster_id: Callable[[], str],
        broker_lost: Callable[[int], None],
        failed: Callable[[BaseException], None],
        connectors: Connectors | None = None,
    ) -> None:
        """`cluster_id` as the log directories have it. `broker_lost` is called with a node whose connection closed: its
        process may have ended."""
        self._config = config
        self._directory_id = directory.id
        self._is_rejoining = directory.is_rejoining
        self._broker_lost = broker_lost
        self._voters = {each.node_id: Address(each.host, each.port) for each in config.parsed_controller_voters}
        self._links_by_address: dict[Address, PeerLink] = {}  # to nodes whose ids are not known yet
        self._addresses: tuple[Configuration | None, Mapping[int, Address]] = (None, {})
        self._learned: dict[int, Address] = {}  # of leaders, by a node that has no configuration yet
        self._written_cluster_id = cluster_id
        self._refused = asyncio.Event()
        self._refusal = ""
        self._transport = QuorumTransport(
            QuorumIdentity(
                node_id=config.node_id,
                directory_id=self._directory_id,
                cluster_id=self._cluster_id,
            )
        )
        election_timeout = config.controller_quorum_election_timeout_ms / 1000
        self.store = MetadataStore(
            directory.path,
            node_id=config.node_id,
            voters=self._first_configuration(),
            transport=self._transport,
            settings=RaftSettings(election_timeout=election_timeout, heartbeat_interval=election_timeout / 5),
            failed=failed,
        )
        self.peers = Peers(
            node_id=config.node_id,
            listener=config.parsed_inter_broker_listener_name,
            image=lambda: self.store.image,
            leader_id=lambda: self.store.leader_id,
            controllers=self.addresses,
            silence_seconds_max=2 * election_timeout,
            controller_listener=config.controller_listener_names[0].upper() if config.controller_listener_names else "",
            connectors=connectors,
        )
        self._transport.connect(self.peers, lambda: self.store.driver.node)
        self.peers.lost = self._node_lost
        self.store.watch(self.peers.follow)
        self.store.watch(self._follow)
        self.store.watch_leader(self.peers.leader_changed)
        self.store.watch_controller(self._controller_changed)
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._heard_at = 0.0

    # -- members and addresses -----------------------------------------------

    @property
    def own_address(self) -> Address:
        """Where the other members reach this node."""
        if self._config.node_id in self._voters:
            return self._voters[self._config.node_id]
        listener = self._config.parsed_controller_listener
        assert listener is not None
        return Address(current().host_name() if listener.host in WILD else listener.host, listener.port)

    def _bootstrap_addresses(self) -> list[Address]:
        """Where a node that is no member can ask to become one."""
        servers = [Address(host, port) for host, port in self._config.parsed_bootstrap_servers]
        own = self.own_address
        here = ("localhost", "127.0.0.1", "::1", own.host)
        known = [*servers, *(address for node_id, address in self._voters.items() if node_id != self._config.node_id)]
        return [each for each in known if not (each.port == own.port and each.host in here)]

    def _first_configuration(self) -> Configuration:
        """Of a new cluster: the voters that the settings name, or this node alone; none for a node that joins one."""
        if self._is_rejoining:
            return Configuration()
        if self._config.node_id in self._voters:
            return Configuration(tuple(member_of(*each) for each in sorted(self._voters.items())))
        if self._voters or self._bootstrap_addresses():
            return Configuration()
        return Configuration((member_of(self._config.node_id, self.own_address),))

    def addresses(self) -> Mapping[int, Address]:
        """The controller listeners of all members. What the settings say is newer than what the log says."""
        configuration = self.store.driver.node.configuration
        if configuration is not self._addresses[0]:
            self._addresses = (configuration, {**self._learned, **addresses_of(configuration), **self._voters})
        return self._addresses[1]

    # -- taking part -------------------------------------------------------

    async def start(self) -> None:
        await self.store.start()
        if self.store.driver.node.configuration.voters != (self._config.node_id,):
            self._spawn(self._stay_joined())

    def _cluster_id(self) -> str:
        return self.store.image.cluster_id or self._written_cluster_id()

    async def unless_refused(self, work: Coroutine[Any, Any, None]) -> None:
        """Await what needs the quorum, but not for ever: raises when it says that this node is of another cluster."""
        working, refused = asyncio.create_task(work), asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait((working, refused), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise RuntimeError(self._refusal)
            await working
        finally:
            working.cancel()
            refused.cancel()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for link in self._links_by_address.values():
            await link.close()
        await self.store.close()
        await self.peers.close()

    def receive(self, request: RaftMessageRequest) -> None:
        if self._transport.accepts(request):
            self._heard_at = monotonic()
            self.store.driver.receive(bytes(request.data), sender=request.sender)

    @property
    def is_isolated(self) -> bool:
        """Whether no other member has been heard for a while: what this node knows may be long out of date."""
        is_alone = self.store.driver.node.configuration.voters == (self._config.node_id,)
        return not is_alone and monotonic() - self._heard_at > ISOLATED_SECONDS

    def connection_closed(self, client_id: str | None) -> None:
        """A connection to the controller listener has ended: if it was a node's, that node may have, too."""
        node_id = node_id_of(client_id)
        if node_id is None or node_id == self._config.node_id:
            return
        self.store.driver.disconnected(node_id)
        self._node_lost(node_id)

    def _node_lost(self, node_id: int) -> None:
        if node_id != self._config.node_id:
            self._broker_lost(node_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _follow(self, old: Image, new: Image) -> None:
        if (old.cluster_id, old.features) != (new.cluster_id, new.features):
            self._keep_own_place()

    def _controller_changed(self, _epoch: int | None) -> None:
        self._keep_own_place()

    def _keep_own_place(self) -> None:
        """On the controller of a cluster that has begun: from here on the log names the members, whatever the
        settings say, and with directory ids from when every broker can read them."""
        if self.store.is_controller and self.store.image.cluster_id and not self._is_written():
            self._spawn(self._write_configuration())

    async def _write_configuration(self) -> None:
        while self.store.is_controller and not self._is_written():
            try:
                await self.store.driver.update_member(
                    self._config.node_id,
                    detail=detail_of(self.own_address),
                    directory_id=self._writable(self._directory_id),
                )
            except (RaftError, LeadershipLost) as error:
                log.debug("the configuration is not written yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    # -- joining, and being found ------------------------------------------

    async def _stay_joined(self) -> None:
        """Make sure, again and again, that the quorum knows this node and where it listens.

        A node that loses its vote is no member any more; as long as it is a broker, it goes on without one.
        """
        leaderless_since: float | None = None
        while True:
            leaderless_since = None if self.store.leader_id is not None else leaderless_since or monotonic()
            is_cut_off = leaderless_since is not None and monotonic() > leaderless_since + LEADERLESS_SECONDS_MAX
            if is_cut_off or not self._is_known():
                for link in self._links_to_ask():
                    if await self._ask_to_join(link):
                        break
            await asyncio.sleep(RETRY_SECONDS if not self._is_known() else WATCH_SECONDS)

    def _is_known(self) -> bool:
        node = self.store.driver.node
        if node.configuration_index == 0:
            return node.configuration.member(self._config.node_id) is not None
        return self._is_written()

    def _is_written(self) -> bool:
        """Whether the quorum's log has this node, where it is."""
        node = self.store.driver.node
        member = node.configuration.member(self._config.node_id)
        if member is None or node.configuration_index == 0:
            return False
        known = (detail_of(self.own_address), self._writable(self._directory_id))
        return (member.detail, member.directory_id) == known

    def _writable(self, directory_id: bytes) -> bytes:
        """Brokers of an older build cannot read a configuration with directory ids. One that has some stays so."""
        members = self.store.driver.node.configuration.members
        has_some = any(each.directory_id != NO_DIRECTORY for each in members)
        return directory_id if has_some or may_write_directory_ids(self.store.image) else NO_DIRECTORY

    def _links_to_ask(self) -> list[PeerLink]:
        try:
            return [self.peers.to_controller(purpose="joining")]
        except PeerUnavailable:
            pass
        known = {*self._bootstrap_addresses(), *self.addresses().values()} - {self.own_address}
        for address in sorted(known - self._links_by_address.keys()):
            self._links_by_address[address] = self.peers.link_to(address)
        return [self._links_by_address[address] for address in sorted(known)]

    async def _ask_to_join(self, link: PeerLink) -> bool:
        own = self.own_address
        request = JoinQuorumRequest(
            node_id=self._config.node_id,
            cluster_id=self._cluster_id(),
            host=own.host,
            port=own.port,
            directory_id=self._directory_id,
        )
        try:
            answer = await link.send(request, version=0, timeout=REQUEST_SECONDS_MAX, response=JoinQuorumResponse)
        except PeerUnavailable as error:
            log.debug("joining: %s", error)
            return False
        if answer.leader_id >= 0:
            self._learn_address(answer.leader_id, Address(answer.leader_host, answer.leader_port))
        if answer.error_code == ErrorCode.NOT_CONTROLLER and answer.leader_id >= 0 and link.name != "leader":
            leader = self.peers.link_to(Address(answer.leader_host, answer.leader_port), name="leader")
            try:
                return await self._ask_to_join(leader)
            finally:
                await leader.close()
        if answer.error_code in FATAL:
            name = ErrorCode(answer.error_code).name
            self._refusal = f"the quorum refuses this node: {name}: {answer.error_message}"
            log.error(self._refusal)
            self._refused.set()
        return answer.error_code == ErrorCode.NONE

    def _learn_address(self, node_id: int, address: Address) -> None:
        """A node that joins answers the leader's first messages before the configuration says where that listens."""
        if self._learned.get(node_id) != address:
            self._learned[node_id] = address
            self._addresses = (None, {})

    async def add_observer(
        self, node_id: int, *, host: str, port: int, cluster_id: str, directory_id: bytes = NO_DIRECTORY
    ) -> None:
        """On the leader: a node asks to follow the metadata, or says that it has moved."""
        mine = self.store.image.cluster_id
        if cluster_id and mine and cluster_id != mine:
            raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is cluster {mine}, not {cluster_id}.")
        driver, detail = self.store.driver, detail_of(Address(host, port))
        member = driver.node.configuration.member(node_id)
        if member is not None:
            _check_directory(member, directory_id)
            self._check_alive(member, directory_id)
        directory_id = self._writable(directory_id)
        try:
            if member is None:
                await driver.add_learner(node_id, detail=detail, directory_id=directory_id)
            elif (member.detail, member.directory_id) != (detail, directory_id):
                await driver.update_member(node_id, detail=detail, directory_id=directory_id)
        except (RaftError, LeadershipLost) as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error

    def _check_alive(self, member: Member, directory_id: bytes) -> None:
        """Only its own process moves a live member: it is recognised by its directory id, if it has one."""
        node = self.store.driver.node
        if member.node_id == self._config.node_id:
            is_same, is_alive = directory_id == self._directory_id, True
        else:
            is_same = directory_id == member.directory_id
            heard_at = next(each.heard_at for each in node.replicas() if each.member == member)
            is_alive = node.now - heard_at < ISOLATED_SECONDS and member.directory_id != NO_DIRECTORY
        if is_alive and not is_same:
            raise Refused(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another process is node {member.node_id}, and was heard a moment ago.",
            )

    # -- votes -------------------------------------------------------------

    async def add_voter(self, node_id: int, *, address: Address | None, seconds_max: float) -> None:
        """On the leader: give a member a vote, as soon as it has caught up (KIP-853)."""
        driver, deadline = self.store.driver, monotonic() + seconds_max
        if node_id in driver.node.configuration.voters:
            raise Refused(ErrorCode.DUPLICATE_VOTER, f"Node {node_id} is a voter already.")
        while True:
            try:
                if driver.node.configuration.member(node_id) is None:
                    if address is None:
                        raise Refused(ErrorCode.INVALID_REQUEST, f"The address of node {node_id} is not known.")
                    await driver.add_learner(node_id, detail=detail_of(address))
                await driver.add_voter(node_id)
                return
            except (ChangePending, NotCaughtUp) as error:
                if monotonic() > deadline:
                    raise Refused(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
            except (RaftError, LeadershipLost) as error:
                raise Refused(ErrorCode.NOT_CONTROLLER, str(error)) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def remove_observer(self, node_id: int) -> None:
        """On the leader: a broker was unregistered. If it had a vote, removing that is another decision."""
        if node_id in self.store.driver.node.configuration.learners:
            try:
                await self.store.driver.remove_member(node_id)
            except (RaftError, LeadershipLost) as error:
                log.warning("node %d stays in the quorum's configuration: %s", node_id, error)

    async def remove_voter(self, node_id: int, *, directory_id: bytes = NO_DIRECTORY) -> None:
        """On the leader: take a member's vote. With a directory id, only if the vote is that directory's."""
        driver = self.store.driver
        member = driver.node.configuration.member(node_id)
        if member is None or not member.is_voter:
            raise Refused(ErrorCode.VOTER_NOT_FOUND, f"Node {node_id} is not a voter.")
        if directory_id != NO_DIRECTORY and member.directory_id not in (NO_DIRECTORY, directory_id):
            raise Refused(ErrorCode.VOTER_NOT_FOUND, f"Node {node_id} has its vote in another directory.")
        try:
            await self._remove_member(node_id)
            if node_id != self._config.node_id and node_id in self.store.image.brokers:
                await driver.add_learner(node_id, detail=member.detail)  # a broker follows the metadata, vote or not
        except UnknownMember as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ChangePending as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except LeadershipLost as error:
            # A leader that removes itself leads no more when that is committed.
            if node_id != self._config.node_id or node_id in driver.node.configuration.voters:
                raise Refused(ErrorCode.NOT_CONTROLLER, str(error)) from error
        except RaftError as error:
            raise Refused(ErrorCode.NOT_CONTROLLER, str(error)) from error

    async def _remove_member(self, node_id: int) -> None:
        """One change at a time: another that is under way (a member that has moved, say) is waited for."""
        deadline = monotonic() + CHANGE_SECONDS_MAX
        while True:
            try:
                await self.store.driver.remove_member(node_id)
                return
            except ChangePending:
                if monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)


def _check_directory(member: Member, directory_id: bytes) -> None:
    """Another process with a voter's id, or that voter without its disk, neither takes its place nor its address."""
    if member.is_voter and member.directory_id not in (NO_DIRECTORY, directory_id):
        raise Refused(
            ErrorCode.INVALID_VOTER_KEY,
            f"Node {member.node_id} is a voter whose metadata is in another directory. If its disk is lost for good,"
            " take its vote away (RemoveRaftVoter) before it joins with an empty one.",
        )
