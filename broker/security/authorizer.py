"""Kafka's StandardAuthorizer, as this broker has it: the rights of each client by the newest image, kept until the
entries change."""

from __future__ import annotations

from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.principal import Principal
from tidemark.broker.metadata.acl_index import AclIndex
from tidemark.broker.metadata.image import Image
from tidemark.broker.security.rights import Budget, Rights

CLIENTS_MAX: Final = 10_000  # whose rights are kept: those of more are found again
DECISIONS_MAX: Final = 200_000  # of all of them: about 50 MB


class Authorizer:
    def __init__(self, config: BrokerConfig) -> None:
        self._super_users = config.parsed_super_users
        self._allows_without_acl = config.allow_everyone_if_no_acl_found
        self._index = AclIndex()
        self._forget()

    def _forget(self) -> None:
        self._rights: dict[tuple[Principal, str], Rights] = {}
        self._budget = Budget(DECISIONS_MAX)

    def follow(self, _old: Image, new: Image) -> None:
        if new.acls is not self._index:
            self._index = new.acls
            self._forget()

    def rights(self, principal: Principal, host: str) -> Rights:
        found = self._rights.get((principal, host))
        if found is None or self._budget.left < 0:
            found = self._make(principal, host)
        return found

    def _make(self, principal: Principal, host: str) -> Rights:
        if len(self._rights) >= CLIENTS_MAX or self._budget.left < 0:
            self._forget()
        rights = self._rights[principal, host] = Rights(
            principal,
            host,
            self._index,
            is_super=str(principal) in self._super_users,
            allows_without_acl=self._allows_without_acl,
            budget=self._budget,
        )
        return rights
