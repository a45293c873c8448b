"""Listeners that anybody on the network may use: said once, at the start."""

from __future__ import annotations

import ipaddress

from tidemark.broker.config.broker import BrokerConfig
from tidemark.broker.config.listeners import Listener
from tidemark.broker.core.principal import ANONYMOUS


def open_listeners(config: BrokerConfig) -> list[Listener]:
    """Those that other machines can reach, and that ask nobody who they are."""
    controllers = config.parsed_controller_listener
    every = [*config.parsed_listeners, *config.parsed_http_listeners, *([] if controllers is None else [controllers])]
    return [each for each in every if not is_loopback(each.host) and not _authenticates(each, config)]


def about_open_listeners(config: BrokerConfig) -> list[str]:
    exposed = open_listeners(config)
    if not exposed:
        return []
    may = "may do anything"
    if config.authorizer_class_name and str(ANONYMOUS) not in config.parsed_super_users:
        may = f"may do whatever {ANONYMOUS} may"
    return [
        f"other machines can reach {', '.join(map(str, exposed))}, and whoever connects there {may} without"
        " saying who they are; docs/security.md tells how to close this door."
    ]


def _authenticates(listener: Listener, config: BrokerConfig) -> bool:
    if listener.security_protocol == "SSL":
        return config.of_listener(listener.name).ssl_client_auth == "required"
    return listener.has_logins


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
