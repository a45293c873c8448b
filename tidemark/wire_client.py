"""A small Kafka client for what librdkafka has no call for: messages over sockets of our own, one request at a time.

The command line asks the cluster with it, and Spark's reader plans and fetches with it. Both translate its two errors
into their own. It lies beside the packages, not in one of them: protocol/ stays free of sockets, and neither front end
imports the other.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import RequestHeader, read_correlation_id, request_frame, response_body_at
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.schema import api, codec

if TYPE_CHECKING:
    from tidemark.client_security import ClientSecurity
    from tidemark.protocol.sasl.client import Login

RESPONSE_BYTES_MAX: Final = 512 << 20

Address = tuple[str, int]
T = TypeVar("T")


class BadAddress(ValueError):
    """Text that is no broker's address."""


class NoAnswer(Exception):
    """A broker could not be reached, or did not answer as it should; the message says which and why."""


class LoginFailed(NoAnswer):
    """A broker answered, and did not let us in; the message is its own."""


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """host:port, [v6]:port, or a host alone where there is a default; librdkafka also takes PROTOCOL://host:port."""
    rest = text.strip().rpartition("://")[2]
    host, colon, port = rest.rpartition(":")
    if default_port is not None and (not colon or rest.endswith("]")):
        host, port = rest, str(default_port)
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise BadAddress(f"{text.strip()!r} is not host:port")
    return host.strip("[]"), int(port)


def parse_addresses(text: str, *, default_port: int | None = None) -> list[Address]:
    return [parse_address(each, default_port=default_port) for each in text.split(",")]


def require_open_port(addresses: Iterable[Address], *, timeout_s: float) -> None:
    """Fail at once, with the system's reason, where no address accepts connections; librdkafka retries in silence."""
    reasons = []
    for address in addresses:
        try:
            socket.create_connection(address, timeout=timeout_s).close()
            return
        except TimeoutError:
            reasons.append("no answer")
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no resolver takes
            reasons.append((getattr(error, "strerror", None) or str(error)).lower())
    raise NoAnswer("; ".join(dict.fromkeys(reasons)))


def error_name(code: int) -> str:
    """Kafka's name of an error code; a newer broker may send one that we do not know."""
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


class Connection:
    """A connection to one broker. Responses come in the order of the requests."""

    def __init__(
        self, address: Address, *, client_id: str, timeout_s: float, security: ClientSecurity | None = None
    ) -> None:
        self._client_id = client_id
        self._sent_ids = count()
        self._expected_ids = count()
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None:
            self._socket = security.wrap(self._socket, address[0])
            if security.login is not None:
                self._log_in(security.login)

    def close(self) -> None:
        self._socket.close()

    def _log_in(self, login: Login) -> None:
        try:
            log_in(self, login)
        except BaseException:
            self.close()
            raise

    def send(self, request: object, version: int) -> None:
        declared = api(type(request))
        header = RequestHeader(declared.key, version, next(self._sent_ids), self._client_id)
        body = bytearray()
        codec(type(request), version).encode(request, body)
        self._socket.sendall(request_frame(header, body, flexible=version in declared.flexible))

    def receive(self, response: type[T], version: int) -> T:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise OSError(f"an answer of {size} bytes")
        frame = self._receive_exactly(size)
        if read_correlation_id(frame) != next(self._expected_ids):
            raise OSError("an answer to another request")
        decoded: T = codec(response, version).decode(frame, response_body_at(frame, response, version))
        return decoded

    def _receive_exactly(self, size: int) -> memoryview:
        frame = memoryview(bytearray(size))
        received = 0
        while received < size:
            part = self._socket.recv_into(frame[received:])
            if not part:
                raise OSError("it closed the connection")
            received += part
        return frame


def log_in(connection: Connection, login: Login) -> None:
    """By SASL, on a connection that was just made. Raises OSError."""
    from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from tidemark.protocol.sasl.client import LoginRefused, client_mechanism

    try:
        mechanism = client_mechanism(login, new_nonce=lambda: secrets.token_hex(24))
        connection.send(SaslHandshakeRequest(mechanism=mechanism.name), 1)
        offered = connection.receive(SaslHandshakeResponse, 1)
        if offered.error_code:
            raise LoginRefused(f"it offers {', '.join(offered.mechanisms) or 'no login'}, not {mechanism.name}")
        token = mechanism.respond(b"")
        while token is not None:
            connection.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            answer = connection.receive(SaslAuthenticateResponse, 2)
            if answer.error_code:
                raise LoginRefused(answer.error_message or error_name(answer.error_code))
            token = mechanism.respond(bytes(answer.auth_bytes))
    except LoginRefused as error:
        raise PermissionError(str(error)) from None


def require_handshake(addresses: Iterable[Address], security: ClientSecurity, *, timeout_s: float) -> None:
    """As `require_open_port`, for TLS and logins: that the broker is trusted here, and takes us."""
    reasons = []
    for address in addresses:
        try:
            connection = Connection(address, client_id="tidemark", timeout_s=timeout_s, security=security)
        except PermissionError as error:
            raise LoginFailed(str(error)) from None
        except OSError as error:
            reasons.append(_tls_reason(error) if security.is_encrypted else str(error))
            continue
        try:
            connection.send(ApiVersionsRequest(), 0)
            connection.receive(ApiVersionsResponse, 0)
            return
        except OSError as error:
            reasons.append(_tls_reason(error) if security.is_encrypted else str(error))
        finally:
            connection.close()
    raise NoAnswer("; ".join(dict.fromkeys(reasons)))


def _tls_reason(error: OSError) -> str:
    """OpenSSL's own words, without the place in its source."""
    verified = getattr(error, "verify_message", "")
    reason = verified or getattr(error, "reason", "") or error.strerror or str(error)
    return f"TLS failed: {str(reason).replace('_', ' ').lower()}"


class BrokerConnections:
    """Connections to the brokers of a cluster, made when first needed."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str,
        timeout_s: float,
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._addresses: Mapping[int, Address] = {}
        self._connections: dict[Address, Connection] = {}

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._addresses)

    def set_addresses(self, addresses: Mapping[int, Address]) -> None:
        """Where the brokers are, by node id, as the last Metadata response says."""
        self._addresses = addresses

    def ask(self, node_id: int, request: object, response: type[T], version: int) -> T:
        if node_id not in self._addresses:
            raise NoAnswer(f"broker {node_id} is not in the cluster's metadata")
        return self._ask(self._addresses[node_id], request, response, version)

    def ask_any(self, request: object, response: type[T], version: int) -> T:
        """The first answer that one of the known brokers, or one of the bootstrap addresses, gives."""
        failure: NoAnswer | None = None
        for address in dict.fromkeys([*self._addresses.values(), *self._bootstrap]):
            try:
                return self._ask(address, request, response, version)
            except NoAnswer as error:
                failure = failure or error
        raise failure or NoAnswer("no broker is known")

    def connection(self, node_id: int) -> Connection:
        return self._connection(self._addresses[node_id])

    def drop(self, node_id: int) -> None:
        """End a connection that failed, or whose next response is no longer wanted."""
        self._drop(self._addresses[node_id])

    def close(self) -> None:
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    def _ask(self, address: Address, request: object, response: type[T], version: int) -> T:
        try:
            connection = self._connection(address)
            connection.send(request, version)
            return connection.receive(response, version)
        except (OSError, ValueError) as error:
            self._drop(address)
            reason = str(error) or type(error).__name__
            raise NoAnswer(f"{address[0]}:{address[1]} did not answer as it should: {reason}") from error

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(
                address, client_id=self._client_id, timeout_s=self._timeout_s, security=self._security
            )
        return self._connections[address]

    def _drop(self, address: Address) -> None:
        if connection := self._connections.pop(address, None):
            connection.close()
