"""This broker as a member of its cluster: it registers, sends heartbeats, holds a lease, and leaves in good order.

A lease (broker/lease.py) runs from when a heartbeat was sent, so it ends before the controller gives this broker's
partitions to others. A node that was paused past it serves nothing until the controller has heard from it again and it
knows what has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidemark.broker.core.lease import LeaseTimings, lease_clock
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.records import Endpoint
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.peers import Peers, PeerUnavailable
from tidemark.environment import monotonic, random_bytes
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemark.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.05
CATCH_UP_SECONDS: Final = 0.02  # between heartbeats of a broker that is about to be unfenced
SHUT_DOWN_SECONDS_MAX: Final = 10.0
UNANSWERED_SECONDS_MAX: Final = 1.5  # a broker that shuts down waits no longer for a controller that is silent
REQUEST_SECONDS_MAX: Final = 2.0
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by Kafka's number
_FATAL: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION)


class BrokerMembership:
    def __init__(
        self,
        *,
        store: MetadataStore,
        peers: Peers,
        settings: DynamicConfig,
        endpoints: Callable[[], Sequence[Endpoint]],
        cluster_id: Callable[[], str],
        renew_lease: Callable[[float], None],
        is_behind: Callable[[], bool] = lambda: False,
        stalled_seconds: Callable[[], float] = lambda: 0.0,
        previous_epoch: int = -1,
        log_dirs: Callable[[], list[bytes]] = list,
        offline_log_dirs: Callable[[], list[bytes]] = list,
    ) -> None:
        """`renew_lease(until)`: this broker may serve until then, by `lease_clock`. `is_behind`: whether it does not do
        yet all that the metadata here says; `stalled_seconds`: for how long the disk has not taken what the quorum
        sends, so that this broker does not hear what is decided. `previous_epoch`: of its last life, if that ended in
        good order. `log_dirs`: the ids of the log directories that work; `offline_log_dirs`: of those that have failed
        since."""
        self._log_dirs = log_dirs
        self._offline_log_dirs = offline_log_dirs
        self.broker_epoch = previous_epoch
        self._is_behind = is_behind
        self._stalled_seconds = stalled_seconds
        self._followed_index = 0
        self._renew_lease = renew_lease
        self._store = store
        self._peers = peers
        self._settings = settings
        self._endpoints = endpoints
        self._cluster_id = cluster_id
        self._incarnation_id = random_bytes(16)
        self._is_shutting_down = False
        self._answered_at = 0.0
        self._shutdown_allowed = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._timings = LeaseTimings(session=settings.static.broker_session_timeout_ms / 1000)

    # -- registering -------------------------------------------------------

    async def register(self) -> None:
        """Returns when the controller has registered this broker, and the image here says so."""
        limit = self._settings.static.initial_broker_registration_timeout_ms / 1000
        deadline = monotonic() + limit
        while not await self._try_to_register():
            if monotonic() > deadline:
                raise RuntimeError(f"no controller has registered this broker within {limit:.0f} s")
            await asyncio.sleep(RETRY_SECONDS)
        await self._store.applied(self.broker_epoch)

    async def _try_to_register(self) -> bool:
        config = self._settings.static
        request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._cluster_id(),
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=SECURITY_PROTOCOLS.index(each.security_protocol),
                )
                for each in self._endpoints()
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_features().items()
            ],
            rack=config.broker_rack,
            previous_broker_epoch=self.broker_epoch,
            log_dirs=self._log_dirs(),
        )
        try:
            link = self._peers.to_controller(purpose="heartbeat")
            response = await link.send(
                request, version=4, timeout=REQUEST_SECONDS_MAX, response=BrokerRegistrationResponse
            )
        except PeerUnavailable as error:
            log.debug("registering: %s", error)
            return False
        if response.error_code in _FATAL:
            raise RuntimeError(f"the controller refuses this broker: {ErrorCode(response.error_code).name}")
        if response.error_code != ErrorCode.NONE:
            log.info("the controller does not register this broker yet: %s", ErrorCode(response.error_code).name)
            return False
        self.broker_epoch = response.broker_epoch
        return True

    def start(self) -> None:
        self._store.watch_leader(self._wake.set)
        self._running = asyncio.create_task(self._send_heartbeats())

    async def unfenced(self) -> None:
        """Returns when the controller has unfenced this broker, and the image here says so."""
        await self._unfenced.wait()

    def tell_soon(self) -> None:
        """Something has happened that the controller should hear of before the next heartbeat is due."""
        self._wake.set()

    # -- heartbeats -------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        while not self._shutdown_allowed.is_set():
            self._wake.clear()
            wait = await self._send_heartbeat()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_heartbeat(self) -> float:
        """How long to wait until the next."""
        sent_at = lease_clock()
        is_stalled = self._stalled_seconds() > self._timings.silence
        if is_stalled:
            self._stop_serving()
        request = BrokerHeartbeatRequest(
            broker_id=self._settings.static.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=is_stalled,
            want_shut_down=self._is_shutting_down,
            offline_log_dirs=self._offline_log_dirs(),
        )
        try:
            link = self._peers.to_controller(purpose="heartbeat")
            # An answer that is lost must leave time for another try before the lease is over.
            seconds_max = min(REQUEST_SECONDS_MAX, self._timings.held / 2)
            response = await link.send(request, version=1, timeout=seconds_max, response=BrokerHeartbeatResponse)
        except PeerUnavailable as error:
            log.debug("heartbeat: %s", error)
            return RETRY_SECONDS
        if response.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            log.warning("the controller does not know this broker under epoch %d; registering again", self.broker_epoch)
            await self._try_to_register()
            return RETRY_SECONDS
        if response.error_code != ErrorCode.NONE:
            return RETRY_SECONDS
        return RETRY_SECONDS if is_stalled else self._handle_answer(response, sent_at)

    def _stop_serving(self) -> None:
        """Others may lead by now what this broker leads, and it would not hear of it."""
        if self._unfenced.is_set():
            log.error("the disk that holds the metadata hangs: this broker serves nothing, and asks to be fenced")
            self._unfenced.clear()
        self._renew_lease(lease_clock())

    def _metadata_offset(self) -> int:
        """How far this broker follows the metadata. One that was fenced is let in again by this: it must not serve what
        it led before, so to know of its successors is not enough."""
        if not self._is_behind():
            self._followed_index = self._store.applied_index
        return self._followed_index

    def _handle_answer(self, response: BrokerHeartbeatResponse, sent_at: float) -> float:
        self._answered_at = monotonic()
        if response.should_shut_down:
            self._shutdown_allowed.set()
        if response.is_fenced:
            return CATCH_UP_SECONDS if not self._is_shutting_down else RETRY_SECONDS
        self._renew_lease(sent_at + self._timings.held)
        if self._is_shutting_down:
            return RETRY_SECONDS
        if not self._unfenced.is_set():
            if not self._store.image.is_active(self._settings.static.node_id):
                return CATCH_UP_SECONDS  # unfenced, but the image here lags: clients that ask here would not find it
            self._unfenced.set()
        return self._timings.heartbeat_interval(self._settings.static.broker_heartbeat_interval_ms / 1000)

    # -- shutting down -------------------------------------------------------

    async def shut_down(self) -> bool:
        """Controlled shutdown: returns when others lead what this broker led, or it takes too long (False)."""
        if self._running is None or self._running.done():
            return False
        self._is_shutting_down = True
        self._wake.set()
        deadline = monotonic() + SHUT_DOWN_SECONDS_MAX
        self._answered_at = monotonic()
        while not self._shutdown_allowed.is_set():
            if monotonic() > min(deadline, self._answered_at + UNANSWERED_SECONDS_MAX):
                log.warning("no other broker has taken over what this one leads; stopping all the same")
                return False
            await asyncio.sleep(RETRY_SECONDS)
        return True

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])


def supported_features() -> dict[str, tuple[int, int]]:
    """Which levels of Kafka's features this software can do."""
    from tidemark.broker.metadata.features import SUPPORTED

    return {name: (low, high) for name, (low, high) in SUPPORTED.items()}
