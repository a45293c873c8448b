"""Configuration: one table of settings for brokers and one for topics, with loaders and descriptions."""

from broker.config.broker import KEYS, BrokerConfig, broker_key, validate_broker_config
from broker.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    Source,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from broker.config.errors import ConfigError
from broker.config.group import GROUP_KEYS, GroupConfig, group_key, validate_group_configs
from broker.config.key import Key, Scope, Type
from broker.config.listeners import Listener
from broker.config.load import load_config
from broker.config.topic import TOPIC_KEYS, TopicConfig, topic_key, validate_topic_config, validate_topic_configs

__all__ = [
    "GROUP_KEYS",
    "KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
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
    "describe_cluster_default",
    "describe_group",
    "describe_topic",
    "group_key",
    "load_config",
    "topic_key",
    "validate_broker_config",
    "validate_group_configs",
    "validate_topic_config",
    "validate_topic_configs",
]
