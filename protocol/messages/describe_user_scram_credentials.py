"""DescribeUserScramCredentials (key 50): which SCRAM mechanisms users have credentials for (KIP-554)."""

from __future__ import annotations

from tidemark.protocol.schema import array, int8, int16, int32, message, string, struct


@struct
class UserName:
    name: str = string()


@message(key=50, versions="0", flexible="0+", listeners="broker controller")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = array(UserName, nullable="0+")  # null or empty: all of them


@struct
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
