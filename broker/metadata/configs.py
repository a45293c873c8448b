"""What the controller decides about settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final

from tidemark.broker.config import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigError,
    Key,
    Type,
    broker_key,
    validate_broker_config,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_configs,
)
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CLUSTER_DEFAULT,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Image,
)
from tidemark.broker.metadata.min_isr import check_change, end_eligibility
from tidemark.broker.metadata.records import ConfigRecord, Record
from tidemark.protocol.errors import ErrorCode

SUBSCRIPTIONS_MAX: Final = 1_000
SUBSCRIPTION_NAME_MAX: Final = 249  # as topics


class ConfigOperation(IntEnum):
    """KIP-339."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Change = tuple[str, ConfigOperation, str | None]


def resource_label(resource_type: int, name: str) -> str:
    kinds = {
        TOPIC_RESOURCE: "Topic",
        BROKER_RESOURCE: "Broker",
        GROUP_RESOURCE: "Group",
        CLIENT_METRICS_RESOURCE: "Client metrics subscription",
    }
    kind = kinds.get(resource_type, f"Resource type {resource_type}")
    return f"{kind} '{name}'"


def alter_config(
    image: Image, resource_type: int, name: str, changes: Sequence[Change], *, broker: BrokerConfig
) -> list[Record]:
    """Change single settings."""
    _check_resource(image, resource_type, name)
    current = dict(image.config_of(resource_type, name))
    wanted = dict(current)
    for key, operation, value in changes:
        new = _apply(resource_type, current.get(key), key, operation, value)
        if new is None:
            wanted.pop(key, None)
        else:
            wanted[key] = new
    _validate(resource_type, name, wanted, broker)
    return _difference(image, resource_type, name, current, wanted)


def replace_config(
    image: Image, resource_type: int, name: str, values: Mapping[str, str | None], *, broker: BrokerConfig
) -> list[Record]:
    """Replace all settings: what is not named goes back to its default."""
    _check_resource(image, resource_type, name)
    for key, value in values.items():
        if value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The setting {key} has no value.")
    wanted = {key: value for key, value in values.items() if value is not None}
    _validate(resource_type, name, wanted, broker)
    return _difference(image, resource_type, name, image.config_of(resource_type, name), wanted)


def _check_resource(image: Image, resource_type: int, name: str) -> None:
    if resource_type == TOPIC_RESOURCE:
        if name not in image.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        return
    if resource_type == GROUP_RESOURCE:  # it may be set before there is such a group
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "A group has no empty name.")
        return
    if resource_type == CLIENT_METRICS_RESOURCE:
        _check_subscription_name(image, name)
        return
    if resource_type != BROKER_RESOURCE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no settings here.")
    if name != CLUSTER_DEFAULT and name not in map(str, image.brokers):
        raise Refused(ErrorCode.INVALID_REQUEST, f"There is no broker {name!r}.")


def _check_subscription_name(image: Image, name: str) -> None:
    """Every broker keeps them all in mind, and looks through them for each new client."""
    if not 0 < len(name) <= SUBSCRIPTION_NAME_MAX:
        problem = f"A client metrics subscription has a name of 1 to {SUBSCRIPTION_NAME_MAX} characters."
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    known = sum(kind == CLIENT_METRICS_RESOURCE for kind, _ in image.configs)
    if known >= SUBSCRIPTIONS_MAX and (CLIENT_METRICS_RESOURCE, name) not in image.configs:
        raise Refused(ErrorCode.INVALID_REQUEST, f"There are {known} client metrics subscriptions already.")


def _apply(
    resource_type: int, current: str | None, key: str, operation: ConfigOperation, value: str | None
) -> str | None:
    if operation is ConfigOperation.DELETE:
        _check_key(resource_type, key)
        return None
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"The setting {key} has no value.")
    if operation is ConfigOperation.SET:
        return value
    known = _check_key(resource_type, key)
    if known.type is not Type.LIST:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"{key} is not a list: nothing can be appended to or subtracted from it."
        )
    base = current if current is not None else known.format(known.default) or ""
    items = [item for item in base.split(",") if item]
    given = [item for item in value.split(",") if item]
    if operation is ConfigOperation.APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)


def _check_key(resource_type: int, key: str) -> Key:
    tables = {TOPIC_RESOURCE: TOPIC_KEYS, GROUP_RESOURCE: GROUP_KEYS, CLIENT_METRICS_RESOURCE: CLIENT_METRICS_KEYS}
    keys = tables.get(resource_type)
    if keys is None:
        with suppress(ConfigError):
            return broker_key(key)
    if keys is None or key not in keys:
        raise Refused(ErrorCode.INVALID_CONFIG, f"There is no setting {key}.")
    return keys[key]


def _difference(
    image: Image, resource_type: int, name: str, current: Mapping[str, str], wanted: Mapping[str, str]
) -> list[Record]:
    check_change(resource_type, name, current, wanted)
    changes = [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=wanted.get(key))
        for key in sorted({*current, *wanted})
        if current.get(key) != wanted.get(key)
    ]
    return [*changes, *end_eligibility(image, resource_type, name, current, wanted)]


def _validate(resource_type: int, name: str, wanted: Mapping[str, str], broker: BrokerConfig) -> None:
    try:
        if resource_type == TOPIC_RESOURCE:
            validate_topic_configs(wanted, broker=broker)
            return
        if resource_type == GROUP_RESOURCE:
            validate_group_configs(wanted, broker=broker)
            return
        if resource_type == CLIENT_METRICS_RESOURCE:
            validate_client_metrics_configs(wanted)
            return
        for key, value in wanted.items():
            validate_broker_config(key, value, for_one_broker=name != CLUSTER_DEFAULT)
        broker.with_values(wanted)
    except ConfigError as error:
        code = ErrorCode.INVALID_REQUEST if resource_type == BROKER_RESOURCE else ErrorCode.INVALID_CONFIG
        raise Refused(code, str(error)) from error
