"""The registry's client against a server that counts, fails and answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tidemark.pipeline.registry import client
from tidemark.pipeline.registry.client import (
    Registry,
    RegistryAway,
    RegistryRefused,
    RegistrySettings,
    Schema,
    UnknownSchema,
)


class Answers(ThreadingHTTPServer):
    """By path: what is answered, in turn; the last one again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.by_path: dict[str, list[tuple[int, Any]]] = {}
        self.asked: list[str] = []
        self.authorization: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.authorization.append(self.headers.get("Authorization"))
        answers = self.server.by_path.get(self.path, [(404, {"error_code": 40403, "message": "not there"})])
        code, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_schema_is_asked_for_once(server: Answers) -> None:
    server.by_path["/schemas/ids/7"] = [(200, {"schema": '"int"'})]
    registry = Registry(RegistrySettings(url=server.url, username="u", password="p"))
    assert registry.by_id(7) == registry.by_id(7) == Schema(kind="AVRO", text='"int"')
    assert server.asked == ["/schemas/ids/7"]
    assert server.authorization == ["Basic dTpw"]


def test_one_that_is_missing_is_not_asked_for_with_every_record(server: Answers) -> None:
    registry = Registry(RegistrySettings(url=server.url))
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="the registry has no schema 9"):
            registry.by_id(9)
    assert server.asked == ["/schemas/ids/9"]


def test_references_are_followed(server: Answers) -> None:
    refers = {"name": "money.proto", "subject": "money", "version": 2}
    server.by_path["/schemas/ids/1"] = [(200, {"schemaType": "PROTOBUF", "schema": "a", "references": [refers]})]
    server.by_path["/subjects/money/versions/2"] = [(200, {"schemaType": "PROTOBUF", "schema": "b"})]
    found = Registry(RegistrySettings(url=server.url)).by_id(1)
    assert found.references == (("money.proto", Schema(kind="PROTOBUF", text="b")),)
    assert Schema.of_note(found.note()) == found


def test_a_registry_that_is_away_is_waited_for_and_asked_elsewhere(
    server: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_PAUSE_S", 0.01)
    server.by_path["/schemas/ids/7"] = [(503, {}), (200, {"schema": '"int"'})]
    assert Registry(RegistrySettings(url=f"http://127.0.0.1:1,{server.url}")).by_id(7).text == '"int"'
    monkeypatch.setattr(client, "PATIENCE_S", 0.05)
    with pytest.raises(RegistryAway, match="did not answer"):
        Registry(RegistrySettings(url="http://127.0.0.1:1")).by_id(7)


def test_a_refusal_is_told_and_not_repeated(server: Answers) -> None:
    server.by_path["/schemas/ids/7"] = [(401, {"message": "who are you?"})]
    with pytest.raises(RegistryRefused, match=r"answers 401: who are you\?"):
        Registry(RegistrySettings(url=server.url)).by_id(7)
    assert len(server.asked) == 1


def test_a_proxy_that_finds_nothing_is_a_registry_that_is_away(
    server: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for "no such schema", it would turn good records into malformed ones."""
    monkeypatch.setattr(client, "RETRY_PAUSE_S", 0.01)
    server.by_path["/schemas/ids/7"] = [(404, "no backend"), (404, {"message": "?"}), (200, {"schema": '"int"'})]
    assert Registry(RegistrySettings(url=server.url)).by_id(7).text == '"int"'


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(RegistrySettings(url="http://x", username="u", password="geheim"))
