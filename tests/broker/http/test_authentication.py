"""Who asks over HTTP, and what they may do: users of PLAIN and SCRAM, and the authorizer's rules."""

from typing import Any

import pytest

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
