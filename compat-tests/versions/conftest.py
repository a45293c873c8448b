from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess
from harness.ports import free_port


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess], is_control: bool) -> BrokerProcess:
    """With an HTTP listener, as `make run` has it: then requests are measured, which is another way through it."""
    return session_brokers(None if is_control else {"http.listeners": f"HTTP://127.0.0.1:{free_port()}"})
