"""Java: logins of kafka-clients by every mechanism, and Kafka's own tools for users and tokens."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from harness.java import tool_command
from harness.java_programs import compiled, run_tools
from harness.sasl import ADMIN, java, properties

CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"


@pytest.fixture
def files(tmp_path):
    def write(name: str, values: dict[str, str]) -> str:
        path = tmp_path / f"{name}.properties"
        path.write_text(properties(values))
        return str(path)

    return write


def run_logins(bootstrap: str, cases: dict[str, str], allowed_url: str = "-") -> dict[str, str]:
    done = subprocess.run(
        tool_command("Sasl", bootstrap, allowed_url, extra_classpath=(compiled(),)),
        input="".join(f"{name}\t{path}\n" for name, path in cases.items()),
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(reported) == len(cases), done.stderr[-4000:]
    return {report["case"]: report["error"] for report in reported}


@pytest.mark.usefixtures("users")
def test_the_java_client_logs_in(secure_broker, files):
    cases = {
        "plain": files("plain", java("PLAIN", "bob", "bob-secret")),
        "scram_256": files("scram_256", java("SCRAM-SHA-256", "ann", "ann-secret")),
        "scram_512": files("scram_512", java("SCRAM-SHA-512", "ann", "ann-secret")),
        "token": files("token", java("SCRAM-SHA-512", "ann", "ann-secret")),
        "refused_plain": files("refused_plain", java("PLAIN", "bob", "wrong")),
        "refused_scram": files("refused_scram", java("SCRAM-SHA-512", "nobody", "wrong")),
    }
    assert run_logins(secure_broker.bootstrap, cases) == dict.fromkeys(cases, "")


def test_the_java_client_logs_in_with_tokens_of_an_issuer(oauth_broker, oidc_url, files):
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.token.endpoint.url": f"{oidc_url}/token",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="ann" clientSecret="any";'
        ),
    }
    cases = {"oauthbearer": files("oauthbearer", settings)}
    assert run_logins(oauth_broker.bootstrap, cases, f"{oidc_url}/token") == {"oauthbearer": ""}


def test_config_command_makes_describes_and_deletes_users(secure_broker, files):
    at = ["--bootstrap-server", secure_broker.bootstrap, "--command-config", files("admin", java("PLAIN", *ADMIN))]
    cat = ["--entity-type", "users", "--entity-name", "cat"]
    made, described, settings, deleted, gone = run_tools(
        [CONFIGS, *at, "--alter", *cat, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=meow]"],
        [CONFIGS, *at, "--describe", *cat],
        [CONFIGS, *at, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0"],
        [CONFIGS, *at, "--alter", *cat, "--delete-config", "SCRAM-SHA-512"],
        [CONFIGS, *at, "--describe", *cat],
    )
    assert "Completed updating" in made.checked().stdout
    assert "SCRAM-SHA-512=iterations=8192" in described.checked().stdout
    assert "Completed updating" in deleted.checked().stdout
    assert "SCRAM" not in gone.checked().stdout
    assert not re.search("admin-secret|bob-secret|only-brokers-know-it", settings.checked().stdout)


def test_delegation_token_command(secure_broker, files):
    at = ["--bootstrap-server", secure_broker.bootstrap, "--command-config", files("admin", java("PLAIN", *ADMIN))]
    (made,) = run_tools(
        [TOKENS, *at, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"],
    )
    hmac = re.search(r"[A-Za-z0-9+/]{80,}={0,2}", made.checked().stdout)
    assert hmac, made.stdout
    described, renewed, expired, gone = run_tools(
        [TOKENS, *at, "--describe", "--owner-principal", "User:admin"],
        [TOKENS, *at, "--renew", "--renew-time-period", "-1", "--hmac", hmac[0]],
        [TOKENS, *at, "--expire", "--expiry-time-period", "-1", "--hmac", hmac[0]],
        [TOKENS, *at, "--describe", "--owner-principal", "User:admin"],
    )
    assert "User:bob" in described.checked().stdout
    assert "Completed renew operation" in renewed.checked().stdout
    assert "Completed expire operation" in expired.checked().stdout
    assert hmac[0] not in gone.checked().stdout
