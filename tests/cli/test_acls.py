"""`tidemark acls` against an embedded broker with an authorizer, whose anonymous clients are super users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import tidemark
from tidemark.cli.main import main

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with tidemark.embedded(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS;User:boss") as running:
        yield running


@pytest.fixture
def run(broker: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def call(action: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["acls", action, "-b", broker.bootstrap, *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    yield call
    call("remove", "--all")


def test_entries_are_added_listed_and_removed(run: Any) -> None:
    code, out, _ = run(
        "add", "--principal", "User:ann", "--topic", "orders", "--operation", "read", "--operation", "write"
    )
    assert (code, len(out.splitlines())) == (0, 2)
    run("add", "--principal", "User:bob", "--group", "re", "--prefixed", "--deny", "--host", "10.0.0.0/8")
    run("add", "--principal", "User:bob", "--cluster", "--operation", "cluster-action")
    listed = json.loads(run("list", "--json")[1])
    assert len(listed) == 4
    assert listed[-1] == {
        "principal": "User:bob",
        "host": "10.0.0.0/8",
        "permission": "deny",
        "operation": "all",
        "resource": "group",
        "pattern": "prefixed",
        "name": "re",
    }
    assert len(json.loads(run("list", "--topic", "orders", "--operation", "read", "--json")[1])) == 1
    code, out, _ = run("remove", "--principal", "User:ann")
    assert (code, len(out.splitlines())) == (0, 2)
    assert len(json.loads(run("list", "--json")[1])) == 2
    assert run("remove", "--principal", "User:ann")[0] == 4


def test_removing_needs_to_say_what(run: Any) -> None:
    with pytest.raises(SystemExit):
        run("remove")
    with pytest.raises(SystemExit):
        run("remove", "--all", "--principal", "User:ann")


def explained(run: Any, principal: str, operation: str, *rest: str) -> str:
    code, out, _ = run("explain", "--principal", principal, "--operation", operation, *rest)
    assert code == 0
    return str(out)


def test_explain_names_the_rule(run: Any) -> None:
    orders = ("--topic", "orders", "--host", "10.0.0.7")
    assert explained(run, "User:ann", "read", *orders) == (
        "May User:ann read topic orders from 10.0.0.7? No, no entry allows it.\n"
    )
    run("add", "--principal", "User:ann", "--topic", "ord", "--prefixed", "--operation", "read")
    assert explained(run, "User:ann", "read", *orders) == (
        "May User:ann read topic orders from 10.0.0.7? Yes, by the rule: User:ann may READ TOPIC ord* from anywhere.\n"
    )
    assert "? Yes, by the rule" in explained(run, "User:ann", "describe", *orders)
    run("add", "--principal", "User:*", "--topic", "orders", "--deny", "--host", "10.0.0.0/8")
    assert "? No, by the rule: User:* may not ALL TOPIC orders from 10.0.0.0/8." in explained(
        run, "User:ann", "read", *orders
    )
    assert "? Yes, a super user" in explained(run, "User:boss", "alter", "--cluster")


def test_a_broker_without_an_authorizer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with tidemark.embedded() as open_broker:
        assert main(["acls", "list", "-b", open_broker.bootstrap]) == 1
    assert "SECURITY_DISABLED" in capsys.readouterr().err
