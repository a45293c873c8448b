"""Who asks over HTTP, and what they may do: users, tokens and certificates, and the authorizer's rules."""

import asyncio
import base64
import json
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemark.broker.security.sasl.steps import AuthenticationFailed
from tidemark.certificates import Authority
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tidemark.protocol.sasl import scram

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
async def client(start_http: Any, browse: Any) -> Any:
    node = await start_http(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,HTTP:SASL_PLAINTEXT",
        **{"listener.name.http.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"},
        sasl_plain_users='{"ann": "secret", "bob": "hidden"}',
        authorizer_class_name=AUTHORIZER,
        super_users="User:ann;User:ANONYMOUS",
        connection_failed_authentication_delay_ms="1",
    )
    return browse(node), node


async def test_health_is_for_everybody_and_the_rest_for_those_who_name_themselves(client: Any) -> None:
    http, _ = client
    assert (await http.get("/readyz")).status_code == 200
    for answer in (
        await http.get("/topics"),
        await http.get("/metrics"),
        await http.get("/topics", auth=("ann", "wrong")),
        await http.get("/topics", auth=("nobody", "secret")),
        await http.get("/topics", headers={"Authorization": "Bearer abc"}),
    ):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert (await http.get("/topics", headers={"Authorization": "Basic ???"})).status_code == 400
    assert (await http.get("/topics", auth=("ann", "secret"))).status_code == 200


async def test_rights_are_those_of_kafka_clients(client: Any) -> None:
    http, _ = client
    ann, bob = ("ann", "secret"), ("bob", "hidden")
    assert (await http.post("/topics", json={"name": "t"}, auth=ann)).status_code == 201
    assert (await http.post("/topics/t/records", json={"value": 1}, auth=ann)).status_code == 200
    refused = await http.post("/topics/t/records", json={"value": 1}, auth=bob)
    assert (refused.status_code, refused.json()["error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    assert (await http.get("/topics/t/partitions/0/records?offset=0", auth=bob)).status_code == 403
    assert (await http.get("/topics/t/partitions/0/records", auth=bob)).status_code == 403
    assert (await http.get("/topics/t/partitions/9/records", auth=bob)).status_code == 403
    assert (await http.get("/topics/nowhere/partitions/0/records", auth=bob)).status_code == 403
    assert (await http.get("/topics", auth=bob)).json() == {"topics": []}
    assert (await http.delete("/topics/t", auth=bob)).status_code == 403
    assert (await http.get("/metrics", auth=bob)).status_code == 403
    assert (await http.get("/metrics", auth=ann)).status_code == 200


async def test_nobody_learns_over_http_whether_a_topic_exists_or_how_many_partitions_it_has(client: Any) -> None:
    http, _ = client
    ann, bob = ("ann", "secret"), ("bob", "hidden")
    assert (await http.post("/topics", json={"name": "payroll", "partitions": 3}, auth=ann)).status_code == 201
    for topic in ("payroll", "nowhere"):
        reset = {"offsets": [{"topic": topic, "partition": 99, "offset": 0}]}
        for answer in (
            await http.get(f"/topics/{topic}/stream?partition=99", auth=bob),
            await http.get(f"/topics/{topic}/stream", headers={"Last-Event-ID": "0=0,1=0,2=0"}, auth=bob),
            await http.get(f"/topics/{topic}/partitions/99/records", auth=bob),
            await http.post(f"/topics/{topic}/records", json={"partition": 99, "value": 1}, auth=bob),
            await http.put("/groups/readers/offsets", json=reset, auth=bob),
        ):
            assert (answer.status_code, answer.json()["error"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), answer.text


async def test_users_of_scram_log_in_with_their_passwords(client: Any, connect: Any) -> None:
    http, node = client
    kafka = await connect(node)
    salt = b"0123456789abcdef"
    salted = scram.salted_password("SCRAM-SHA-256", "pässword", salt=salt, iterations=4096)
    upsertion = ScramCredentialUpsertion(name="eve", mechanism=1, iterations=4096, salt=salt, salted_password=salted)
    answer = await kafka.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert answer.results[0].error_code == 0
    assert (await http.get("/topics", auth=("eve", "pässword"))).status_code == 200
    assert (await http.get("/topics", auth=("eve", "password"))).status_code == 401


async def test_a_consumer_is_only_for_the_user_who_made_it(client: Any) -> None:
    http, _ = client
    ann, bob = ("ann", "secret"), ("bob", "hidden")
    assert (await http.post("/groups/g/consumers", json={}, auth=bob)).status_code == 403
    url = (await http.post("/groups/g/consumers", json={}, auth=ann)).json()["url"]
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/records")):
        assert (await http.request(method, url + path, auth=bob)).status_code == 404
        assert (await http.request(method, url + path)).status_code == 401
    assert (await http.put(f"{url}/subscription", json={"topics": ["t"]}, auth=bob)).status_code == 404
    assert (await http.get(url, auth=ann)).status_code == 200


async def test_guessing_passwords_takes_one_thread_at_most(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    http, _ = client
    running, most = 0, 0

    def derive(*_: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        raise AuthenticationFailed("wrong")

    monkeypatch.setattr("tidemark.broker.http.authentication.scrammed", derive)
    answers = await asyncio.gather(*(http.get("/topics", auth=("eve", str(guess))) for guess in range(10)))
    assert ({each.status_code for each in answers}, most) == ({401}, 1)


async def test_a_token_of_an_issuer_says_who_asks(start_http: Any, browse: Any) -> None:
    node = await start_http(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,HTTP:SASL_PLAINTEXT",
        **{"listener.name.http.sasl.enabled.mechanisms": "OAUTHBEARER"},
        sasl_oauthbearer_unsecured_allow="true",
        authorizer_class_name=AUTHORIZER,
        super_users="User:ann;User:ANONYMOUS",
        connection_failed_authentication_delay_ms="1",
    )
    http = browse(node)

    async def status(**claims: Any) -> int:
        known = {"iat": time.time() - 1, "exp": time.time() + 60, **claims}
        parts = ({"alg": "none"}, known)
        token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        answer = await http.post("/topics", json={"name": "t"}, headers={"Authorization": f"Bearer {token}."})
        return int(answer.status_code)

    assert await status(sub="ann") == 201
    assert await status(sub="bob") == 403
    assert await status(sub="ann", exp=time.time() - 60) == 401
    assert await status(sub="") == 401
    for header in ("Bearer", "Bearer x.y.z", "Basic YW5uOnNlY3JldA=="):
        answer = await http.get("/topics", headers={"Authorization": header})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_certificate_says_who_asks(start_http: Any, tmp_path: Path) -> None:
    authority = Authority.make()
    named = {name: authority.issue(name, ["127.0.0.1"]) for name in ("node", "ann", "bob")}
    for name, each in named.items():
        (tmp_path / f"{name}.pem").write_bytes(each.key_pem() + each.pem)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    node = await start_http(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,HTTP:SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(tmp_path / "node.pem"),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(tmp_path / "ca.pem"),
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=([^,]+).*$/$1/",
        authorizer_class_name=AUTHORIZER,
        super_users="User:ann;User:ANONYMOUS",
    )
    host, port = node.http_endpoints["HTTP"]

    async def status(name: str | None) -> int:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        if name is not None:
            context.load_cert_chain(tmp_path / f"{name}.pem")
        async with httpx.AsyncClient(base_url=f"https://{host}:{port}", verify=context, trust_env=False) as http:
            # A header cannot make it somebody else.
            return int((await http.post("/topics", json={"name": "t"}, auth=("ann", "any"))).status_code)

    assert await status("ann") == 201
    assert await status("bob") == 403
    with pytest.raises((httpx.HTTPError, ssl.SSLError)):
        await status(None)


ODD = ("localhost:80@evil.example", "localhost:80, evil.example", "127.0.0.1:x")


async def test_a_page_that_gives_its_own_name_this_address_gets_nothing(start_http: Any, browse: Any) -> None:
    http = browse(await start_http())
    for host in ("localhost", "localhost:8082", "127.0.0.1", "[::1]:8082", ""):
        assert (await http.get("/topics", headers={"Host": host})).status_code == 200, host
    for host in (
        "evil.example",
        "evil.example:8082",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[evil]",
    ):
        answer = await http.get("/topics", headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]) == (421, "INVALID_REQUEST"), host
        assert (await http.get("/livez", headers={"Host": host})).status_code == 200
    for host in ODD:  # no host at all
        assert (await http.get("/topics", headers={"Host": host})).status_code == 400, host
