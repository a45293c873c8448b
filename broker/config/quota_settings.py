"""The broker settings of quotas: over how long rates are measured, and how fast clients may connect."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.broker.config.coordinator_settings import CoordinatorSettings
from tidemark.broker.config.key import INT_MAX, Between, Scope, integer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class QuotaSettings(CoordinatorSettings):
    quota_window_num: int = integer(
        11,
        "How many windows of quota.window.size.seconds count for quotas of clients: one that was idle may use what all"
        " but one of them allow at once.",
        check=Between(1),
    )
    quota_window_size_seconds: int = integer(
        1,
        "How many seconds each of the windows of quota.window.num has. It is also how long a client waits at most for"
        " having taken too much of a broker's time.",
        check=Between(1),
    )
    replication_quota_window_num: int = integer(
        11,
        "How many windows of replication.quota.window.size.seconds throttled replication may save up for when it"
        " was idle.",
        check=Between(1),
    )
    replication_quota_window_size_seconds: int = integer(
        1, "How many seconds each of the windows of replication.quota.window.num has.", check=Between(1)
    )
    controller_quota_window_num: int = integer(
        11,
        "How many windows of controller.quota.window.size.seconds a client may save up for under a"
        " controller_mutation_rate quota.",
        check=Between(1),
    )
    controller_quota_window_size_seconds: int = integer(
        1, "How many seconds each of the windows of controller.quota.window.num has.", check=Between(1)
    )
    max_connection_creation_rate: int = integer(
        INT_MAX,
        "How many connections per second are taken on; further ones wait. As listener.name.NAME."
        "max.connection.creation.rate it is a listener's own limit. The controller's listener has none, and the"
        " listener between brokers, if clients have others, does not count against the broker's.",
        check=Between(1),
        scope=Scope.CLUSTER_WIDE,
        per_listener=True,
    )
