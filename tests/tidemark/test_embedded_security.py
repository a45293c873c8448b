"""`embedded(security=…)` hands a test what its client needs, in one call."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from tidemark import embedded
from tidemark.client_security import ClientSecurity
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.wire_client import Connection


def ask(broker, settings) -> ApiVersionsResponse:
    address = (broker.host, broker.port)
    connection = Connection(address, client_id="test", timeout_s=10, security=ClientSecurity(settings))
    try:
        connection.send(ApiVersionsRequest(), 0)
        return connection.receive(ApiVersionsResponse, 0)
    finally:
        connection.close()


@pytest.mark.parametrize("security", ["tls", "mtls"])
def test_the_settings_of_both_families_of_clients_connect(security) -> None:
    with embedded(security=security) as broker:
        assert broker.client_settings["bootstrap.servers"] == broker.bootstrap
        assert ask(broker, broker.client_settings).api_keys
        assert broker.security is not None
        assert ask(broker, broker.security.java_settings).api_keys


def test_a_client_without_a_certificate_is_refused_where_one_is_required() -> None:
    with embedded(security="mtls") as broker:
        assert broker.security is not None
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(broker.security.ca_file)}
        with pytest.raises(OSError, match=r"(?i)certificate required|closed|reset"):
            ask(broker, settings)


def test_a_client_that_does_not_know_the_authority_does_not_trust_the_broker() -> None:
    with embedded(security="tls") as broker, pytest.raises(ssl.SSLCertVerificationError):
        ask(broker, {"security.protocol": "SSL"})


def test_security_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="'tls', 'mtls'"), embedded(security="magic"):
        pass


def test_producing_and_consuming_with_confluent_kafka() -> None:
    from confluent_kafka import Consumer, Producer

    with embedded(security="mtls") as broker:
        producer = Producer(broker.client_settings)
        producer.produce("t", b"hello")
        assert producer.flush(30) == 0
        consumer = Consumer({**broker.client_settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        consumer.close()
        assert message is not None
        assert message.value() == b"hello"


def test_a_plain_client_on_a_tls_port_is_hung_up_on() -> None:
    with embedded(security="tls") as broker, socket.create_connection((broker.host, broker.port), 10) as client:
        client.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")
        with pytest.raises(ConnectionError):
            _ = client.recv(1) or _raise_reset()


def _raise_reset() -> bytes:
    raise ConnectionResetError


async def test_the_async_form_takes_it_too() -> None:
    from tidemark import embedded_async

    async with embedded_async(security="tls") as broker:
        assert (await asyncio.to_thread(ask, broker, broker.client_settings)).api_keys
