"""HTTPS with certificates, passwords and tokens, by curl and httpx: who one is, and what one may."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

RECORDS = "/topics/secured/records"


def curl(*arguments: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    command = [
        "curl",
        "--silent",
        "--show-error",
        "--max-time",
        "20",
        "--noproxy",
        "*",
        "--write-out",
        "\n%{http_code}",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body) if body else None


def posting(value: object) -> list[str]:
    return ["--header", "Content-Type: application/json", "--data", json.dumps({"value": value})]


@pytest.fixture(scope="module")
def trusting(certificates):
    """httpx, with a certificate or without."""
    clients = []

    def client(url: str, certificate: str | None = None, **options: Any) -> httpx.Client:
        context = ssl.create_default_context(cafile=certificates.ca)
        if certificate is not None:
            context.load_cert_chain(certificates.pem(certificate))
        clients.append(httpx.Client(base_url=url, verify=context, trust_env=False, timeout=20, **options))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


def test_a_certificate_says_who_a_client_is(secure_http_broker, certificates, trusting):
    url = secure_http_broker.urls["CERTS"]
    with_ann = ["--cacert", certificates.ca, "--cert", certificates.pem("ann")]
    status, answer = curl(*with_ann, *posting({"by": "curl"}), url + RECORDS)
    assert (status, len(answer["offsets"])) == (200, 1)
    ann, eve = trusting(url, "ann"), trusting(url, "eve")
    read = ann.get("/topics/secured/partitions/0/records").json()["records"]
    assert [each["value"] for each in read] == [{"by": "curl"}]
    assert eve.post(RECORDS, json={"value": 1}).json()["error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert eve.get("/topics").json() == {"topics": []}
    with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
        trusting(url).get("/topics")  # no certificate, no connection
    with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
        httpx.get(url.replace("https", "http") + "/topics", trust_env=False)


def test_passwords_of_plain_and_scram(secure_http_broker, certificates, trusting):
    admin = AdminClient({"bootstrap.servers": secure_http_broker.bootstrap})
    made = UserScramCredentialUpsertion("ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"scram-secret")
    for future in admin.alter_user_scram_credentials([made]).values():
        future.result(timeout=20)
    url = secure_http_broker.urls["LOGINS"]
    for password in ("plain-secret", "scram-secret"):
        status, _ = curl("--cacert", certificates.ca, "--user", f"ann:{password}", *posting(password), url + RECORDS)
        assert status == 200
    client = trusting(url)
    assert client.get("/topics", auth=("ann", "wrong")).status_code == 401
    assert client.post(RECORDS, json={"value": 1}, auth=("bob", "hidden")).status_code == 403
    assert client.get("/readyz").status_code == 200, "health is for everybody"
    assert client.get("/topics").headers["www-authenticate"].endswith(", Bearer")


def test_tokens_of_an_issuer(secure_http_broker, certificates, issuer, trusting):
    url = secure_http_broker.urls["LOGINS"]
    bearer = ["--oauth2-bearer", issuer.token("ann")]
    status, answer = curl("--cacert", certificates.ca, *bearer, *posting("token"), url + RECORDS)
    assert (status, len(answer["offsets"])) == (200, 1)
    client = trusting(url)
    wrong = [
        issuer.token("ann", exp=int(time.time()) - 100),
        issuer.token("ann", aud="another"),
        issuer.token("ann", iss="https://evil.test"),
        issuer.token("ann")[:-4] + "AAAA",
        "not.a.token",
    ]
    for token in wrong:
        assert client.get("/topics", headers={"Authorization": f"Bearer {token}"}).status_code == 401, token
    bob = {"Authorization": f"Bearer {issuer.token('bob')}"}
    assert client.post(RECORDS, json={"value": 1}, headers=bob).status_code == 403


def test_no_route_but_health_is_open_to_nobody_in_particular(secure_http_broker, trusting):
    client = trusting(secure_http_broker.urls["LOGINS"])
    document = client.get("/openapi.json", auth=("ann", "plain-secret")).json()
    names = {"{topic}": "t", "{partition}": "0", "{group}": "g", "{consumer}": "0-abc", "{broker}": "0"}
    tried = 0
    for path, operations in document["paths"].items():
        for name, value in names.items():
            path = path.replace(name, value)
        for method in operations:
            tried += 1
            expected = 200 if path in ("/livez", "/readyz") else 401
            assert client.request(method, path, json={}).status_code == expected, (method, path)
    assert tried > 25


def test_a_consumer_over_https(secure_http_broker, certificates, trusting):
    ann = trusting(secure_http_broker.urls["LOGINS"], auth=("ann", "plain-secret"))
    ann.post("/topics/consumed/records", json=[{"value": number} for number in range(3)])
    url = ann.post("/groups/secured/consumers", json={}).json()["url"]
    assert url.startswith("https://")
    assert ann.put(f"{url}/subscription", json={"topics": ["consumed"]}).status_code == 204
    read = ann.get(f"{url}/records", params={"wait_ms": 10000}).json()["records"]
    assert [(each["topic"], each["value"]) for each in read] == [("consumed", number) for number in range(3)]
    eve = trusting(secure_http_broker.urls["CERTS"], "eve")
    assert eve.get(url.replace(secure_http_broker.urls["LOGINS"], "")).status_code == 404
    assert ann.delete(url).status_code == 204


def tidemark(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemark.cli.main", *words], capture_output=True, text=True, timeout=60
    )


def test_the_command_watches_where_one_has_to_name_oneself(secure_http_broker, certificates, tmp_path):
    password = tmp_path / "password"
    password.write_text("plain-secret")
    trusting = ["--tls-ca", certificates.ca]
    watched = ["top", "--once", "--json", "--interval", "0.1", *trusting]
    logins, certs = (secure_http_broker.urls[name] for name in ("LOGINS", "CERTS"))
    for words in (
        ["--user", "ann", "--password-file", str(password), logins],
        ["--tls-cert", certificates.pem("ann"), certs],
    ):
        done = tidemark(*watched, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["nodes"][0]["is_controller"]
    refused = tidemark(*watched, logins)
    assert (refused.returncode, "401" in refused.stderr) == (1, True)
    assert tidemark("health", logins).returncode == 3, "its certificate is of an authority that nobody knows"
    assert tidemark("health", *trusting, logins).returncode == 0
    told = tidemark("cluster", "status", "-b", secure_http_broker.bootstrap, *trusting, "--http", logins)
    assert told.returncode == 3, "TLS is what Kafka's listener is asked for then, too"
