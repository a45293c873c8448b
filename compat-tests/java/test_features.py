"""Kafka's FeatureCommand: what it shows, what it changes, and what it is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess
from harness.java import ToolRun
from harness.java_programs import run_tools

LINE = re.compile(
    r"Feature: (?P<name>\S+)\s+SupportedMinVersion: (?P<low>\S+)\s+SupportedMaxVersion: (?P<high>\S+)\s+"
    r"FinalizedVersionLevel: (?P<level>\S+)\s+Epoch: \d+"
)
# Kafka 4.1 has neither share nor streams groups in production: its levels are ours.
RELEASE = "4.1"
RELEASE_LEVELS = {
    "eligible.leader.replicas.version": ("0", "1", "1"),
    "group.version": ("0", "1", "1"),
    "kraft.version": ("0", "1", "1"),
    "metadata.version": ("3.3-IV3", "4.1-IV1", "4.1-IV1"),
    "transaction.version": ("0", "2", "2"),
}

Features = Callable[..., list[ToolRun]]


@pytest.fixture
def features(new_broker: Callable[..., BrokerProcess]) -> Features:
    """Of a broker of its own: levels are the cluster's."""
    broker = new_broker()

    def run(*commands: str) -> list[ToolRun]:
        tool = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap)
        return run_tools(*([*tool, *each.split()] for each in commands))

    return run


def shown(run: ToolRun) -> dict[str, tuple[str, str, str]]:
    found = [LINE.fullmatch(line) for line in run.checked().lines if line]
    assert all(found), run.stdout
    return {each["name"]: (each["low"], each["high"], each["level"]) for each in found if each is not None}


def test_what_is_shown_raised_lowered_and_refused(features: Features, is_control: bool) -> None:
    release = "4.3" if is_control else RELEASE
    first, raised, dry, still, lowered, after, back, unknown, too_high, taken_back, last = features(
        "describe",
        f"upgrade --release-version {release}",
        "downgrade --feature transaction.version=1 --dry-run",
        "describe",
        "downgrade --feature transaction.version=1",
        "describe",
        "upgrade --feature transaction.version=2",
        "upgrade --feature no.such=2",
        "upgrade --feature metadata.version=99",
        "downgrade --feature kraft.version=0",
        "describe",
    )
    levels = shown(first)
    if not is_control:
        assert {name: levels[name] for name in RELEASE_LEVELS} == RELEASE_LEVELS
        assert levels.keys() - RELEASE_LEVELS.keys() == {"tidemark.metadata.version"}
    assert levels["transaction.version"] == ("0", "2", "2")
    assert "transaction.version was upgraded to 2." in raised.checked().lines
    assert dry.checked().lines == ["transaction.version can be downgraded to 1."]
    assert shown(still) == levels
    assert lowered.checked().lines == ["transaction.version was downgraded to 1."]
    assert shown(after)["transaction.version"] == ("0", "2", "1")
    assert back.checked().lines == ["transaction.version was upgraded to 2."]
    for refused, reason in (
        (unknown, "does not support this feature"),
        (too_high, "only supports versions 7-"),
        (taken_back, "Could not downgrade kraft.version to 0."),
    ):
        assert refused.code == 1
        assert reason in refused.stdout + refused.stderr
        assert "1 out of 1 operation(s) failed." in refused.stdout + refused.stderr
    assert shown(last) == levels
