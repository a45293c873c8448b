"""Listener addresses: NAME://host:port, and the security protocol of each name."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tidemark.broker.config.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARDS = ("0.0.0.0", "::")
HTTP_PROTOCOLS = {"HTTP": "PLAINTEXT", "HTTPS": "SSL"}

_ADDRESS = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s/:\[\]]*)):(?P<port>\d{1,5})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address. An empty host means every interface; port 0 means any free port."""

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def is_wild(self) -> bool:
        """Whether this listens on every interface."""
        return self.host in ("", *WILDCARDS)

    @property
    def has_logins(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def client_listeners(addresses: Sequence[str], *, protocols: str, without: Sequence[str]) -> tuple[Listener, ...]:
    """The listeners that clients may use: all but the controllers' (`without`)."""
    parsed = _parse("listeners", addresses, protocols=protocols, without=without)
    if not parsed:
        raise ConfigError("listeners: it names no listener for clients.", key="listeners", value=",".join(addresses))
    for one, other in combinations(parsed, 2):
        if _collide(one, other):
            message = f"listeners: {one} and {other} use the same port."
            raise ConfigError(message, key="listeners", value=",".join(addresses))
    return parsed


def advertised_listeners(
    addresses: Sequence[str] | None, *, opened: Sequence[Listener], protocols: str, without: Sequence[str]
) -> tuple[Listener, ...]:
    """The advertised addresses: those that were opened, where no others are set."""
    if not addresses:
        return tuple(_reachable(listener, key="listeners") for listener in opened)
    parsed = _parse("advertised.listeners", addresses, protocols=protocols, without=without)
    names = [listener.name for listener in opened]
    for listener in parsed:
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners: {listener} has no listener of its name; it must be one of {', '.join(names)}.",
                key="advertised.listeners",
                value=str(listener),
            )
    if not parsed:
        raise ConfigError("advertised.listeners: it names no listener for clients.", key="advertised.listeners")
    return tuple(_reachable(listener, key="advertised.listeners") for listener in parsed)


def http_listeners(addresses: Sequence[str], *, protocols: str, opened: Sequence[Listener]) -> tuple[Listener, ...]:
    """Those that serve HTTP. HTTP and HTTPS need no entry in the map. `opened`: the others, whose ports are taken."""
    parsed = _parse("http.listeners", addresses, protocols=_with_http(protocols), without=())
    for one, other in combinations([*opened, *parsed], 2):
        if other in parsed and (_collide(one, other) or one.name == other.name):
            what = "have the same name" if one.name == other.name else "use the same port"
            raise ConfigError(f"http.listeners: {one} and {other} {what}.", key="http.listeners")
    return parsed


def advertised_http_listeners(
    addresses: Sequence[str], *, opened: Sequence[Listener], protocols: str
) -> tuple[Listener, ...]:
    """Where other nodes send HTTP clients to: as set, or where it was opened, unless that is every interface."""
    if not addresses:
        return tuple(listener for listener in opened if not listener.is_wild)
    key = "http.advertised.listeners"
    parsed = _parse(key, addresses, protocols=_with_http(protocols), without=())
    names = [listener.name for listener in opened]
    for listener in parsed:
        if listener.name not in names or listener.is_wild:
            why = "no client can connect there" if listener.is_wild else "there is no HTTP listener of this name"
            raise ConfigError(f"{key}: {listener}: {why}.", key=key, value=str(listener))
    return parsed


def _with_http(protocols: str) -> str:
    """The map of protocols, with what HTTP and HTTPS usually are."""
    mapped = _protocol_map(protocols)
    usual = [f"{name}:{protocol}" for name, protocol in HTTP_PROTOCOLS.items() if name not in mapped]
    return ",".join(filter(None, (protocols, *usual)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    node_id: int
    host: str
    port: int


def controller_listener(addresses: Sequence[str], *, protocols: str, names: Sequence[str]) -> Listener | None:
    """The one listener that is for the cluster itself. Unless the map says otherwise, it is in plain text."""
    wanted = [name.upper() for name in names]
    mapped = _protocol_map(protocols)
    plain = ",".join(f"{name}:PLAINTEXT" for name in wanted if name not in mapped)
    clients = [
        match["name"] for match in map(_ADDRESS.fullmatch, addresses) if match and match["name"].upper() not in wanted
    ]
    parsed = _parse("listeners", addresses, protocols=",".join(filter(None, (protocols, plain))), without=clients)
    if len(parsed) > 1:
        raise ConfigError("controller.listener.names: only one of them may be opened.", key="controller.listener.names")
    return parsed[0] if parsed else None


def inter_broker_listener(listeners: Sequence[Listener], *, name: str | None, protocol: str | None) -> str:
    """The listener that brokers use among themselves: by its name, by its protocol's name, or the first."""
    if name is not None and protocol is not None:
        raise ConfigError(
            "inter.broker.listener.name and security.inter.broker.protocol: only one of them may be set.",
            key="inter.broker.listener.name",
            value=name,
        )
    names = [listener.name for listener in listeners]
    wanted = (name or protocol or names[0]).upper()
    if wanted not in names:
        key = "inter.broker.listener.name" if protocol is None else "security.inter.broker.protocol"
        message = f"{key}: {wanted} is not among the listeners {', '.join(names)}."
        raise ConfigError(message, key=key, value=name or protocol)
    return wanted


def voter_addresses(voters: Sequence[str]) -> tuple[Voter, ...]:
    """`id@host:port` each, by id."""
    found: dict[int, Voter] = {}
    for text in voters:
        match = re.fullmatch(r"(\d{1,9})@(.+)", text)
        if match is None or int(match[1]) in found:
            raise ConfigError(
                f"controller.quorum.voters: {text!r} is not allowed; it must be id@host:port, each id once.",
                key="controller.quorum.voters",
                value=text,
            )
        ((host, port),) = server_addresses("controller.quorum.voters", [match[2]])
        found[int(match[1])] = Voter(node_id=int(match[1]), host=host, port=port)
    return tuple(found[node_id] for node_id in sorted(found))


def server_addresses(key: str, texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """`host:port` each."""
    found = []
    for text in texts:
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s/:\[\]]+)):(\d{1,5})", text)
        if match is None or not 0 < int(match[3]) <= 65535:
            raise ConfigError(f"{key}: {text!r} is not allowed; it must be host:port.", key=key, value=text)
        found.append((match[1] or match[2], int(match[3])))
    return tuple(found)


def _collide(one: Listener, other: Listener) -> bool:
    same_family = (":" in one.host) == (":" in other.host)
    return one.port == other.port != 0 and same_family and (one.host == other.host or one.is_wild or other.is_wild)


def _parse(key: str, addresses: Sequence[str], *, protocols: str, without: Sequence[str]) -> tuple[Listener, ...]:
    mapping = _protocol_map(protocols)
    skipped = {name.upper() for name in without}
    parsed: dict[str, Listener] = {}
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(
                f"{key}: {address!r} is not allowed; it must be NAME://host:port with a port from 0 to 65535.",
                key=key,
                value=address,
            )
        name = match["name"].upper()
        if name in skipped:
            continue
        if name in parsed:
            raise ConfigError(f"{key}: the listener name {name} comes twice.", key=key, value=address)
        host = match["v6"] or match["host"] or ""
        protocol = _protocol_of(key, address, name=name, mapping=mapping)
        parsed[name] = Listener(name=name, host=host, port=int(match["port"]), security_protocol=protocol)
    return tuple(parsed.values())


def _protocol_of(key: str, address: str, *, name: str, mapping: Mapping[str, str]) -> str:
    protocol = mapping.get(name)
    if protocol is None:
        raise ConfigError(
            f"{key}: {address!r} has no security protocol; listener.security.protocol.map must map {name}.",
            key=key,
            value=address,
        )
    return protocol


def _protocol_map(text: str) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in pair.rpartition(":"))
        if not name or protocol not in PROTOCOLS or name in mapping:
            raise ConfigError(
                f"listener.security.protocol.map: {pair!r} is not allowed; it must be NAME:PROTOCOL, each name once, "
                f"with a protocol out of {', '.join(PROTOCOLS)}.",
                key="listener.security.protocol.map",
                value=text,
            )
        mapping[name] = protocol
    return mapping


def _reachable(listener: Listener, *, key: str) -> Listener:
    if listener.host in WILDCARDS:
        raise ConfigError(
            f"{key}: no client can connect to {listener.host}; advertised.listeners must say where they can.",
            key=key,
            value=str(listener),
        )
    if listener.host:
        return listener
    return replace(listener, host=socket.gethostname())
