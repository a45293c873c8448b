"""Configuration: one table of settings for brokers and one for topics, with loaders and descriptions."""

from typing import TYPE_CHECKING

from tidemark.broker.config.broker import KEYS, BrokerConfig, broker_key, validate_broker_config
from tidemark.broker.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    ClientMetricsConfig,
    validate_client_metrics_configs,
)
from tidemark.broker.config.errors import ConfigError
from tidemark.broker.config.group import GROUP_KEYS, GroupConfig, group_key, validate_group_configs
from tidemark.broker.config.key import Key, Scope, Type
from tidemark.broker.config.listeners import Listener
from tidemark.broker.config.load import load_config
from tidemark.broker.config.topic import (
    TOPIC_KEYS,
    TopicConfig,
    topic_key,
    validate_topic_config,
    validate_topic_configs,
)

if TYPE_CHECKING:
    from tidemark.broker.config.describe import (
        ConfigEntry,
        ConfigSynonym,
        Source,
        describe_broker,
        describe_client_metrics,
        describe_cluster_default,
        describe_group,
        describe_topic,
    )

__all__ = [
    "CLIENT_METRICS_KEYS",
    "GROUP_KEYS",
    "KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ClientMetricsConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigSynonym",
    "GroupConfig",
    "Key",
    "Listener",
    "Scope",
    "Source",
    "TopicConfig",
    "Type",
    "broker_key",
    "describe_broker",
    "describe_client_metrics",
    "describe_cluster_default",
    "describe_group",
    "describe_topic",
    "group_key",
    "load_config",
    "topic_key",
    "validate_broker_config",
    "validate_client_metrics_configs",
    "validate_group_configs",
    "validate_topic_config",
    "validate_topic_configs",
]


def __getattr__(name: str) -> object:
    """Descriptions are loaded when the first is asked for: a broker starts without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidemark.broker.config import describe

    return getattr(describe, name)
