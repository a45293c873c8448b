"""APIs about settings: a topic's and a group's are rights on these, all others are rights on the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemark.broker.core.acl import CLUSTER_NAME, AclOperation, ResourceType
from tidemark.broker.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from tidemark.broker.security.access import FAILED, TEXT, Access
from tidemark.broker.security.rule import Rule, each
from tidemark.protocol.messages import alter_configs, incremental_alter_configs
from tidemark.protocol.messages.describe_configs import DescribeConfigsResult

KINDS: Final = {TOPIC_RESOURCE: ResourceType.TOPIC, GROUP_RESOURCE: ResourceType.GROUP}


def _kind(resource: Any) -> ResourceType:
    return KINDS.get(resource.resource_type, ResourceType.CLUSTER)


def _may(operation: AclOperation) -> Callable[[Access, Any], bool]:
    def may(access: Access, resource: Any) -> bool:
        kind = _kind(resource)
        return access.may(operation, kind, CLUSTER_NAME if kind == ResourceType.CLUSTER else resource.resource_name)

    return may


def _refuse(result: type[Any]) -> Callable[[Any], Any]:
    def refuse(resource: Any) -> object:
        code = FAILED[_kind(resource)]
        return result(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=code,
            error_message=TEXT[code],
        )

    return refuse


def _altering(result: type[Any]) -> Rule:
    return each(_may(AclOperation.ALTER_CONFIGS), _refuse(result), asked="resources", answered="responses")


RULES: Final[Mapping[str, Rule]] = {
    "DescribeConfigs": each(
        _may(AclOperation.DESCRIBE_CONFIGS), _refuse(DescribeConfigsResult), asked="resources", answered="results"
    ),
    "AlterConfigs": _altering(alter_configs.AlterConfigsResourceResponse),
    "IncrementalAlterConfigs": _altering(incremental_alter_configs.AlterConfigsResourceResponse),
}
