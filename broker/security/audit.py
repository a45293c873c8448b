"""The audit log: who did what, from where, on which resource, allowed or denied. A JSON object a line, on a logger of
its own.

Denials are always told. One that happens again and again is told at once, and then once in a while with how often it
has happened since: a client that tries ten thousand times a second must not fill the disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.security.rights import Decision, Rights

log = logging.getLogger("tidemark.audit")

REPEAT_SECONDS: Final = 10.0
NAME_MAX: Final = 256  # characters of a name that is told
KINDS_MAX: Final = 1_000  # of denials that are told apart within that time; more are only counted

Key = tuple[str, str, str, AclOperation, ResourceType, str]


class Audit:
    def __init__(self, *, tells_allowed: bool) -> None:
        self.tells_allowed = tells_allowed
        self._repeated: dict[Key, int] = {}  # how often since it was told
        self._untold = 0
        self._timer: asyncio.TimerHandle | None = None

    def allowed(
        self,
        rights: Rights,
        api: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        decision: Decision,
    ) -> None:
        log.info(_line(_key(rights, api, operation, resource_type, name), "allowed", decision))

    def denied(
        self,
        rights: Rights,
        api: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        decision: Decision,
    ) -> None:
        key = _key(rights, api, operation, resource_type, name)
        if key in self._repeated:
            self._repeated[key] += 1
        elif len(self._repeated) < KINDS_MAX:
            self._repeated[key] = 0
            log.warning(_line(key, "denied", decision))
        else:
            self._untold += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._tell_repeated)

    def _tell_repeated(self) -> None:
        self._timer = None
        repeated, self._repeated = self._repeated, {}
        untold, self._untold = self._untold, 0
        for key, count in repeated.items():
            if count:
                log.warning(_line(key, "denied", None, count=count))
        if untold:
            log.warning(json.dumps({"decision": "denied", "others": untold}))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._tell_repeated()


def _key(rights: Rights, api: str, operation: AclOperation, resource_type: ResourceType, name: str) -> Key:
    shown = name if len(name) <= NAME_MAX else name[: NAME_MAX - 1] + "…"
    return (str(rights.principal), rights.host, api, operation, resource_type, shown)


def _line(key: Key, decision: str, why: Decision | None, **rest: Any) -> str:
    principal, host, api, operation, resource_type, name = key
    told: dict[str, Any] = {
        "decision": decision,
        "principal": principal,
        "host": host,
        "api": api,
        "operation": operation.name,
        "resource_type": resource_type.name,
        "resource": name,
    }
    if why is not None:
        told["reason"] = why.reason if why.rule is None else str(why.rule)
    return json.dumps(told | rest, ensure_ascii=True)
