from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()
