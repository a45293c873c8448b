"""Configuration: one table of settings for brokers and one for topics, with loaders and descriptions."""

from broker.config.broker import KEYS, BrokerConfig, broker_key, validate_broker_config
from broker.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    Source,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from broker.config.errors import ConfigError
from broker.config.key import Key, Scope, Type
from broker.config.listeners import Listener
from broker.config.load import load_config
from broker.config.topic import TOPIC_KEYS, TopicConfig, topic_key, validate_topic_config, validate_topic_configs

__all__ = [
    "KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigSynonym",
    "Key",
    "Listener",
    "Scope",
    "Source",
    "TopicConfig",
    "Type",
    "broker_key",
    "describe_broker",
    "describe_cluster_default",
    "describe_topic",
    "load_config",
    "topic_key",
    "validate_broker_config",
    "validate_topic_config",
    "validate_topic_configs",
]
