"""The whole table of cases, in the order in which they are asked: each file adds its own to it."""

import acl_cases_clients  # noqa: F401
import acl_cases_cluster  # noqa: F401
import acl_cases_tokens  # noqa: F401
from acl_table import GROUP, ROOT, TABLE, TOKEN_OWNER, TOKEN_SECRET, TOPIC, TXN, Case, User, World, users

__all__ = ["GROUP", "ROOT", "TABLE", "TOKEN_OWNER", "TOKEN_SECRET", "TOPIC", "TXN", "Case", "User", "World", "users"]
