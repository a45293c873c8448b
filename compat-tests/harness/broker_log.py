"""What no client may cause: a traceback in the broker's log."""

from __future__ import annotations

import re

from harness.broker_process import ApacheKafka, BrokerProcess

UNEXPECTED = re.compile(r"Traceback \(most recent call last\)|Task exception was never retrieved|\bCRITICAL\b")


def check_log(broker: BrokerProcess) -> None:
    if isinstance(broker, ApacheKafka):
        return
    log = broker.log
    found = UNEXPECTED.search(log)
    shown = "" if found is None else log[max(0, found.start() - 2000) :][:6000]
    assert found is None, f"the broker's log holds what no client should cause:\n{shown}"
