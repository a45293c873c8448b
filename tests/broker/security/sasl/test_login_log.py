from __future__ import annotations

import logging

import pytest

from tidemark.broker.security.sasl.login_log import BURST_MAX, LoginLog


def test_a_flood_of_failures_is_cut_and_counted_and_hides_no_success(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    logins = LoginLog(clock=lambda: now)
    for _ in range(1000):
        logins.refused(user="a\nb" * 100, mechanism="PLAIN", peer="1.2.3.4:5", reason="wrong password")
    logins.accepted(principal="User:ann", mechanism="PLAIN", peer="1.2.3.4:6", again=False)
    assert len(caplog.messages) == BURST_MAX + 1
    assert "User:ann" in caplog.messages[-1]
    assert all("\n" not in line and len(line) < 300 for line in caplog.messages)
    now = 10.0
    logins.refused(user="", mechanism="", peer="1.2.3.4:5", reason="x")
    assert f"{1000 - BURST_MAX} more were not logged" in caplog.messages[-1]


def test_whatever_a_client_makes_up_forges_no_line(caplog: pytest.LogCaptureFixture) -> None:
    logins = LoginLog(clock=lambda: 0.0)
    forged = "X\n2026-11-17 10:00:00 INFO tidemark.security.logins: 'User:admin' logged in by PLAIN from 10.0.0.1:9"
    logins.refused(user=forged, mechanism=forged, peer="1.2.3.4:5", reason=f"there is no such thing as {forged}\r")
    (line,) = caplog.messages
    assert line.isprintable()
