"""A small issuer of tokens: an OIDC token endpoint and its keys, on a thread."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER = "https://issuer.test"
AUDIENCE = "the-broker"


class Issuer:
    """Whoever asks gets a token: the client id is its subject."""

    def __init__(self) -> None:
        self.lifetime_seconds = 300
        self.audience = AUDIENCE
        self.issued = 0
        self.rotate("first")

    def rotate(self, kid: str) -> None:
        """From now on another key signs, and only that one is published."""
        # At once: who asks meanwhile must not get a key of one under the name of the other, and keep it.
        self._signing = kid, rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, subject: str, **changes: Any) -> str:
        self.issued += 1
        now = int(time.time())
        claims = {"sub": subject, "iss": ISSUER, "aud": self.audience, "iat": now, "exp": now + self.lifetime_seconds}
        kid, key = self._signing
        return jwt.encode({**claims, "scope": "all", **changes}, key, "RS256", headers={"kid": kid})

    def keys(self) -> dict[str, Any]:
        kid, key = self._signing
        listed = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        return {"keys": [{**listed, "kid": kid, "use": "sig", "alg": "RS256"}]}


@contextmanager
def serving(issuer: Issuer) -> Iterator[str]:
    """The URL under which `/token` and `/keys` are."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(issuer.keys())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
            client_id = base64.b64decode(credentials).decode().partition(":")[0] if kind == "Basic" else "nobody"
            self._answer({"access_token": issuer.token(client_id), "token_type": "Bearer", "expires_in": 300})

        def _answer(self, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing of it in the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
