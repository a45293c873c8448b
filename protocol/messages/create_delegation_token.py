"""CreateDelegationToken (key 38): a token that others log in by as its owner (KIP-48)."""

from __future__ import annotations

from tidemark.protocol.schema import array, blob, int16, int32, int64, message, string, struct


@struct
class CreatableRenewers:
    principal_type: str = string()
    principal_name: str = string()


@message(key=38, versions="1-3", flexible="2+", listeners="broker controller")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = string("3+", nullable="3+", default=None)  # null: whoever asks
    owner_principal_name: str | None = string("3+", nullable="3+", default=None)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()  # -1: as long as the broker allows


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = blob()
    throttle_time_ms: int = int32()
