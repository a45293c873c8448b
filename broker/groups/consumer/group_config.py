"""The settings of a consumer group: the broker's, overridden by the group's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.broker.config import BrokerConfig

UNSETTLED_HEARTBEAT_MS: Final = 500  # while a group has just changed
UPGRADES: Final = ("upgrade", "bidirectional")
DOWNGRADES: Final = ("downgrade", "bidirectional")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    members_max: int
    assignors: tuple[str, ...]  # the first is the default
    may_upgrade: bool
    may_downgrade: bool
    classic_members_max: int

    def interval_ms(self, *, unchanged_ms: int, waits: bool) -> int:
        """The heartbeat interval in a member's answers.

        Members seldom join alone, and a member that waits for a partition depends on the heartbeats of others. So the
        interval is short for a while after a change.
        """
        if waits or unchanged_ms < self.heartbeat_interval_ms:
            return min(self.heartbeat_interval_ms, UNSETTLED_HEARTBEAT_MS)
        return self.heartbeat_interval_ms


def group_config_of(config: BrokerConfig, overrides: Mapping[str, str]) -> ConsumerGroupConfig:
    """`overrides` were checked when they were set, against what the broker allowed then."""
    session_timeout_ms = overrides.get("consumer.session.timeout.ms", config.group_consumer_session_timeout_ms)
    heartbeat_interval_ms = overrides.get("consumer.heartbeat.interval.ms", config.group_consumer_heartbeat_interval_ms)
    return ConsumerGroupConfig(
        session_timeout_ms=int(session_timeout_ms),
        heartbeat_interval_ms=int(heartbeat_interval_ms),
        members_max=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        may_upgrade=config.group_consumer_migration_policy in UPGRADES,
        may_downgrade=config.group_consumer_migration_policy in DOWNGRADES,
        classic_members_max=config.group_max_size,
    )
