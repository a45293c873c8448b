from __future__ import annotations

import pytest

from tidemark.broker.core.lease import LeaseTimings, lease_clock


@pytest.mark.parametrize("session", [0.5, 2.0, 3.0, 6.0, 9.0, 30.0])
def test_a_broker_stops_serving_before_anybody_else_may_lead(session: float) -> None:
    timings = LeaseTimings(session=session)
    assert timings.held < timings.lease <= timings.silence <= timings.session
    assert timings.heartbeat_interval(2.0) <= timings.held / 5


def test_by_default_others_may_lead_after_three_seconds_and_do_after_four_and_a_half() -> None:
    timings = LeaseTimings(session=9.0)
    assert (timings.lease, timings.silence) == (3.0, 4.5)
    assert timings.heartbeat_interval(2.0) == 0.5
    assert timings.heartbeat_interval(0.3) == 0.3


def test_the_clock_of_leases_goes_on() -> None:
    first = lease_clock()
    assert lease_clock() >= first
