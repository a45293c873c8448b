import socket

import pytest

from tidemark.broker.config import ConfigError, Listener, load_config


def plaintext(name: str, host: str, port: int) -> Listener:
    return Listener(name=name, host=host, port=port, security_protocol="PLAINTEXT")


def test_listeners_are_parsed_with_their_protocol() -> None:
    config = load_config(
        overrides={
            "listeners": "PLAINTEXT://127.0.0.1:0,inside://[::1]:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        }
    )
    assert config.parsed_listeners == (plaintext("PLAINTEXT", "127.0.0.1", 0), plaintext("INSIDE", "::1", 9094))
    assert config.parsed_advertised_listeners == config.parsed_listeners
    assert str(config.parsed_listeners[1]) == "INSIDE://[::1]:9094"


def test_advertised_listeners_replace_what_clients_are_told() -> None:
    config = load_config(
        overrides=["listeners=PLAINTEXT://0.0.0.0:9092", "advertised.listeners=PLAINTEXT://broker.example:19092"]
    )
    assert config.parsed_listeners == (plaintext("PLAINTEXT", "0.0.0.0", 9092),)
    assert config.parsed_advertised_listeners == (plaintext("PLAINTEXT", "broker.example", 19092),)


def test_an_empty_host_listens_everywhere_and_advertises_this_machine() -> None:
    config = load_config(overrides=["listeners=PLAINTEXT://:9092"])
    assert config.parsed_listeners[0].host == ""
    assert config.parsed_advertised_listeners[0].host == socket.gethostname()


def test_two_listeners_may_share_a_port_on_different_addresses() -> None:
    settings = ["listeners=A://127.0.0.1:9092,B://127.0.0.2:9092,C://[::1]:9092"]
    config = load_config(overrides=[*settings, "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"])
    assert len(config.parsed_listeners) == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["listeners=127.0.0.1:9092"], "must be NAME://host:port"),
        (["listeners=PLAINTEXT://127.0.0.1"], "must be NAME://host:port"),
        (["listeners=PLAINTEXT://127.0.0.1:65536"], "port from 0 to 65535"),
        (["listeners=PLAINTEXT://::1:9092"], "must be NAME://host:port"),
        (["listeners=PLAINTEXT://a:1,PLAINTEXT://a:2"], "PLAINTEXT comes twice"),
        (["listeners=OTHER://a:1"], "must map OTHER"),
        (["listeners=A://:1,B://:1", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"], "use the same port"),
        (["listeners=A://h:1,B://:1", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"], "use the same port"),
        (["listeners=PLAINTEXT://0.0.0.0:9092"], "no client can connect to 0.0.0.0"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:9092"], "no client can connect to 0.0.0.0"),
        (["advertised.listeners=OUT://a:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT"], "OUT"),
        (["listener.security.protocol.map=PLAINTEXT:CLEAR"], "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (["listener.security.protocol.map=A:SSL,A:SSL"], "each name once"),
        (["controller.listener.names=PLAINTEXT"], "no listener for clients"),
    ],
)
def test_listeners_that_cannot_work_are_refused(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=settings)
    assert says in str(caught.value)
