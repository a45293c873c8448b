"""Where the nodes of the cluster serve HTTP, as they registered: to send clients there who asked for it."""

from __future__ import annotations

from typing import Final

from tidemark.broker.http.inputs import query_choice
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.broker.metadata.store import MetadataStore

REDIRECT: Final = ("true", "false")


class Addresses:
    def __init__(self, store: MetadataStore, *, node_id: int, is_alone: bool) -> None:
        """`is_alone`: there are no other nodes, so a client need not know how this one calls itself."""
        self._store = store
        self._node_id = node_id
        self._is_alone = is_alone

    def base_of(self, node_id: int, listener: str) -> str | None:
        """The start of a node's URLs, at its listener of that name. None: it has not said where it is reached."""
        broker = self._store.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(listener)
        if endpoint is None:
            return None
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        scheme = "https" if endpoint.security_protocol.endswith("SSL") else "http"
        return f"{scheme}://{host}:{endpoint.port}"

    def own_base(self, request: HttpRequest) -> str:
        """The start of URLs that lead to this very node: as it is advertised, or as the client called it."""
        base = None if self._is_alone else self.base_of(self._node_id, request.listener)
        host = request.headers.get("host", "")
        return base or (f"{'https' if request.is_encrypted else 'http'}://{host}" if host else "")

    def redirect_if_asked(self, request: HttpRequest, node_id: int) -> None:
        """With `redirect=true` a client is sent to the node that leads the partition, if that is another."""
        asked = query_choice(request, "redirect", REDIRECT, default="false") == "true"
        if asked and node_id not in (-1, self._node_id):
            self.redirect(request, node_id)

    def redirect(self, request: HttpRequest, node_id: int) -> None:
        """Raises the Problem that sends the client there, unless nobody knows where that is."""
        base = self.base_of(node_id, request.listener)
        if base is not None:
            where = (("Location", base + request.target),)
            raise Problem(307, "NOT_LEADER_OR_FOLLOWER", f"Node {node_id} has it: {base}.", headers=where)
