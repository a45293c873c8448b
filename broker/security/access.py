"""What a rule asks: whether the client of one request may do something. Every denial is told to the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.core.acl import CLUSTER_NAME, AclOperation, ResourceType
from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.config import BrokerConfig
    from tidemark.broker.metadata.image import Image
    from tidemark.broker.security.audit import Audit
    from tidemark.broker.security.rights import Decision, Rights

NOT_ASKED: Final = -(1 << 31)  # the bit set of operations that nobody asked for
FAILED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
TEXT: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}


class Access:
    __slots__ = ("_audit", "api", "config", "image", "response", "rights")

    def __init__(
        self, api: str, response: type[Any], rights: Rights, *, image: Image, config: BrokerConfig, audit: Audit
    ) -> None:
        """`response`: the type of the API's answer."""
        self.api = api
        self.response = response
        self.rights = rights
        self.image = image
        self.config = config
        self._audit = audit

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str, *, quietly: bool = False) -> bool:
        """`quietly`: where a denial only means that less is shown, or that another right may do as well."""
        decision = self.rights.decide(operation, resource_type, name)
        if decision.is_allowed or not quietly:
            self.tell(decision, operation, resource_type, name)
        return decision.is_allowed

    def tell(self, decision: Decision, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """What was decided without asking for a right."""
        if not decision.is_allowed:
            self._audit.denied(self.rights, self.api, operation, resource_type, name, decision)
        elif self._audit.tells_allowed:
            self._audit.allowed(self.rights, self.api, operation, resource_type, name, decision)

    def topic(self, operation: AclOperation, name: str, *, quietly: bool = False) -> bool:
        return self.may(operation, ResourceType.TOPIC, name, quietly=quietly)

    def group(self, operation: AclOperation, group_id: str, *, quietly: bool = False) -> bool:
        return self.may(operation, ResourceType.GROUP, group_id, quietly=quietly)

    def transactional_id(self, operation: AclOperation, name: str, *, quietly: bool = False) -> bool:
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name, quietly=quietly)

    def cluster(self, operation: AclOperation, *, quietly: bool = False) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, quietly=quietly)

    def of(self, mask: int, resource_type: ResourceType, name: str) -> int:
        """The operations of a bit set that are allowed (KIP-430)."""
        if mask == NOT_ASKED:
            return mask
        rights = self.rights
        return sum(
            1 << operation
            for operation in AclOperation
            if mask >> operation & 1 and rights.may(operation, resource_type, name)
        )


def refusal(code: ErrorCode) -> Refused:
    return Refused(code, TEXT[code])
