"""BrokerRegistration (key 62): a broker that starts makes itself known to the controller (KIP-631)."""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, int16, int32, int64, message, string, struct, uint16, uuid


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class Feature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=62, versions="0-4", flexible="0+", listeners="controller")
class BrokerRegistrationRequest:
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+", default=None)
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array("uuid", "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
