"""ListConfigResources (key 74): names of resources that have configuration.

Version 0 was ListClientMetricsResources and knew that one type only.
"""

from __future__ import annotations

from tidemark.protocol.schema import array, int8, int16, int32, message, string, struct


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = array("int8", "1+")


@struct
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
