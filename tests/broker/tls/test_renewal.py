"""Certificates are renewed without a restart, and not exchanged for another's by mistake."""

from __future__ import annotations

import logging

import pytest

from tidemark.broker.config import ConfigError
from tidemark.broker.tls.endpoints import TlsEndpoints


@pytest.fixture
async def endpoints(stores):
    config = stores.config()
    made = TlsEndpoints(config, config.parsed_listeners)
    yield made
    made.close()


async def test_a_renewed_certificate_is_used_by_new_connections(stores, endpoints) -> None:
    accepting, connecting = endpoints.acceptor("SSL"), endpoints.connector("SSL")
    before = accepting.context, connecting.context
    await endpoints.renew(stores.config())
    assert (accepting.context, connecting.context) == before, "nothing has changed"
    stores.write(stores.authority.issue("node", ["127.0.0.1", "localhost", "more"]))
    await endpoints.renew(stores.config())
    assert accepting.context is not before[0]
    assert connecting.context is not before[1]


@pytest.mark.parametrize(
    ("name", "hosts", "allowing"),
    [
        ("other", ["127.0.0.1", "localhost"], "ssl_allow_dn_changes"),
        ("node", ["127.0.0.1"], "ssl_allow_san_changes"),
    ],
)
async def test_other_names_are_refused_unless_they_are_allowed(
    stores, endpoints, name, hosts, allowing, caplog
) -> None:
    context = endpoints.acceptor("SSL").context
    stores.write(stores.authority.issue(name, hosts))
    with pytest.raises(ConfigError, match=allowing.replace("_", ".")):
        endpoints.check(stores.config())
    for _ in range(3):
        await endpoints.renew(stores.config())
    assert endpoints.acceptor("SSL").context is context
    complaints = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(complaints) == 1, "it is said once, not at every look"
    await endpoints.renew(stores.config(**{allowing: "true"}))
    assert endpoints.acceptor("SSL").context is not context


async def test_a_file_that_is_half_written_changes_nothing(stores, endpoints) -> None:
    context = endpoints.acceptor("SSL").context
    renewed = stores.authority.issue("node", ["127.0.0.1", "localhost"])
    stores.key_file.write_bytes(renewed.key_pem())
    await endpoints.renew(stores.config())
    assert endpoints.acceptor("SSL").context is context
    stores.write(renewed)
    await endpoints.renew(stores.config())
    assert endpoints.acceptor("SSL").context is not context
