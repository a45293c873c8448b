"""Clients that would rather speak HTTP/2: Java's own, as it comes, and curl when it is told to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

JAVA = Path(__file__).with_name("WishesForHttp2.java")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_javas_client_produces_as_it_is(http_broker: Any) -> None:
    url = f"{http_broker.urls['HTTP']}/topics/by-java/records"
    told = run("java", str(JAVA), url, '{"value": 1}', json.dumps({"value": "x" * 100_000}))
    assert told.splitlines() == [f'200 {{"offsets":[{{"partition":0,"offset":{offset}}}]}}' for offset in range(2)]


def test_curl_produces_though_it_is_asked_for_http_2(http_broker: Any) -> None:
    url = f"{http_broker.urls['HTTP']}/topics/by-curl/records"
    asked = ["--http2", "--silent", "--noproxy", "*", "--header", "Content-Type: application/json", "--data"]
    assert json.loads(run("curl", *asked, '{"value": 1}', url)) == {"offsets": [{"partition": 0, "offset": 0}]}
