"""A schema registry over HTTP: Confluent's API, as Confluent's own, Karapace, Apicurio and Redpanda serve it.

A schema never changes under its id, so one that was found is kept. One that was not found may be registered a moment
later, and is asked for again after a while, so that records with a wrong id cost the registry nothing.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TIMEOUT_S = 10.0
PATIENCE_S = 60.0
RETRY_PAUSE_S = 0.5
MISSING_FOR_S = 30.0
SCHEMAS_MAX = 10_000
ANSWER_BYTES_MAX = 16 << 20
REFERENCES_DEEP_MAX = 32
_NOT_NOW = (408, 425, 429, 500, 502, 503, 504)


class RegistryAway(Exception):
    """The registry did not answer in time. Nothing is known about the record then: it is no malformed one."""


class RegistryRefused(Exception):
    """The registry answered, with a no."""


class UnknownSchema(Exception):
    """The registry has no schema of this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where a registry is. Travels to the executors, so it holds plain values only."""

    url: str  # or several, with commas between
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    ca: str | None = None  # a file of certificates, where the system's do not do


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    kind: str
    text: str
    references: tuple[tuple[str, Schema], ...] = ()  # by the name that the text refers to them by

    def note(self) -> str:
        """As text, to be kept or sent."""
        return json.dumps(self._plain())

    def _plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "references": [[n, each._plain()] for n, each in self.references]}

    @classmethod
    def of_note(cls, note: str) -> Schema:
        return cls._of_plain(json.loads(note))

    @classmethod
    def _of_plain(cls, plain: Mapping[str, Any]) -> Schema:
        references = tuple((name, cls._of_plain(each)) for name, each in plain["references"])
        return cls(kind=plain["kind"], text=plain["text"], references=references)


class Registry:
    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._urls = [each.strip().rstrip("/") for each in settings.url.split(",")]
        self._by_id: dict[int, Schema] = {}
        self._missing: dict[int, float] = {}  # id -> when it was not there
        self._registered: dict[tuple[str, Schema], int] = {}
        self._context: ssl.SSLContext | None = None

    def by_id(self, number: int) -> Schema:
        found = self._by_id.get(number)
        if found is not None:
            return found
        if time.monotonic() - self._missing.get(number, -MISSING_FOR_S) < MISSING_FOR_S:
            raise UnknownSchema(f"the registry has no schema {number}")
        answer = self._ask("GET", f"/schemas/ids/{number}")
        if len(self._by_id) + len(self._missing) >= SCHEMAS_MAX:
            self._by_id.clear()
            self._missing.clear()
        if answer is None:
            self._missing[number] = time.monotonic()
            raise UnknownSchema(f"the registry has no schema {number}")
        self._by_id[number] = self._schema(answer)
        return self._by_id[number]

    def latest(self, subject: str) -> tuple[int, Schema] | None:
        """The newest version's id and schema; None if there is no such subject."""
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if answer is None else (int(answer["id"]), self._schema(answer))

    def register(self, subject: str, schema: Schema) -> int:
        """The schema's id; that of the version which is there already, if it is the same."""
        known = self._registered.get((subject, schema))
        if known is not None:
            return known
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", _body(schema))
        if answer is None:
            raise RegistryRefused(f"the registry does not know the subject {subject!r}")
        return self._registered.setdefault((subject, schema), int(answer["id"]))

    def accepts(self, subject: str, schema: Schema) -> bool:
        """Would it be taken as the subject's next version? Nothing is registered."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest"
        answer = self._ask("POST", path, _body(schema))
        return answer is None or bool(answer.get("is_compatible"))

    def _schema(self, answer: Mapping[str, Any], *, deep: int = 0) -> Schema:
        if deep > REFERENCES_DEEP_MAX:
            raise RegistryRefused("the schema's references refer to each other without end")
        references = []
        for each in answer.get("references") or ():
            found = self._ask("GET", f"/subjects/{quote(each['subject'], safe='')}/versions/{int(each['version'])}")
            if found is None:
                raise RegistryRefused(f"the registry has no version {each['version']} of {each['subject']!r}")
            references.append((str(each["name"]), self._schema(found, deep=deep + 1)))
        return Schema(kind=answer.get("schemaType") or AVRO, text=answer["schema"], references=tuple(references))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer; None if there is no such thing. A registry that is away is waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            why = ""
            for url in self._urls:
                try:
                    return self._answer(self._request(method, url + path, body))
                except urllib.error.HTTPError as error:
                    told, is_theirs = _told(error)
                    if error.code == 404 and is_theirs:
                        return None
                    if error.code not in (404, *_NOT_NOW):
                        raise RegistryRefused(f"the registry answers {error.code}: {told}") from None
                    why = f"{url} answers {error.code}: {told}"
                except (OSError, ValueError) as error:
                    why = f"{url}: {getattr(error, 'reason', None) or error}"
            if time.monotonic() > deadline:
                raise RegistryAway(f"The schema registry did not answer for {PATIENCE_S:.0f} s: {why}.")
            time.sleep(RETRY_PAUSE_S)

    def _request(self, method: str, url: str, body: Mapping[str, Any] | None) -> urllib.request.Request:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self._settings.username is not None:
            both = f"{self._settings.username}:{self._settings.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
        elif self._settings.bearer_token is not None:
            headers["Authorization"] = f"Bearer {self._settings.bearer_token}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(url, data=data, headers=headers, method=method)

    def _answer(self, request: urllib.request.Request) -> dict[str, Any]:
        if self._context is None and request.type == "https":
            self._context = ssl.create_default_context(cafile=self._settings.ca)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context) as answer:
            found = json.loads(answer.read(ANSWER_BYTES_MAX))
        if not isinstance(found, dict):
            raise ValueError("it does not answer as a schema registry")
        return found


@cache
def registry(settings: RegistrySettings) -> Registry:
    """One per process: a Python worker of Spark keeps what it has found for all of its tasks."""
    return Registry(settings)


def _body(schema: Schema) -> dict[str, Any]:
    return {"schemaType": schema.kind, "schema": schema.text}


def _told(error: urllib.error.HTTPError) -> tuple[str, bool]:
    """What the answer says, and whether a registry says it: its answers have an error code of their own. A proxy's "not
    found" while the registry is away says nothing about a schema, and must not make its records malformed."""
    try:
        said = json.loads(error.read(10_000).decode(errors="replace"))
        return str(said.get("message", error.reason)), isinstance(said.get("error_code"), int)
    except (OSError, ValueError, AttributeError):
        return str(error.reason), False
