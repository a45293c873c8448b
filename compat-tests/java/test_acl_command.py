"""Kafka's AclCommand on a broker with an authorizer, whose anonymous clients are super users."""

from __future__ import annotations

from collections.abc import Callable

from harness.broker_process import BrokerProcess
from harness.java import ToolRun
from harness.java_programs import run_tools

ACLS = "org.apache.kafka.tools.AclCommand"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def run(broker: BrokerProcess, *commands: str) -> list[ToolRun]:
    return run_tools(*([ACLS, "--bootstrap-server", broker.bootstrap, *words.split()] for words in commands))


def test_entries_of_every_kind_are_added_listed_and_removed(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker(SETTINGS)
    made = run(
        broker,
        "--add --allow-principal User:ann --producer --topic orders --transactional-id payments",
        "--add --allow-principal User:ann --consumer --topic ord --group read --resource-pattern-type prefixed",
        "--add --deny-principal User:bob --operation All --topic * --deny-host 10.0.0.7",
        "--add --allow-principal User:node --operation ClusterAction --cluster",
        "--add --allow-principal User:ann --operation CreateTokens --user-principal User:bob",
        "--add --allow-principal User:ann --operation Describe --delegation-token xyz",
    )
    for each in made:
        each.checked()
    listed, matching, removed, left = run(
        broker,
        "--list",
        "--list --topic orders --resource-pattern-type match",
        "--remove --force --topic orders --transactional-id payments --allow-principal User:ann --producer",
        "--list --principal User:ann",
    )
    shown = listed.checked().stdout
    for line in (
        "(principal=User:ann, host=*, operation=WRITE, permissionType=ALLOW)",
        "(principal=User:bob, host=10.0.0.7, operation=ALL, permissionType=DENY)",
        "(principal=User:node, host=*, operation=CLUSTER_ACTION, permissionType=ALLOW)",
        "(principal=User:ann, host=*, operation=CREATE_TOKENS, permissionType=ALLOW)",
        "ResourcePattern(resourceType=DELEGATION_TOKEN, name=xyz, patternType=LITERAL)",
        "ResourcePattern(resourceType=GROUP, name=read, patternType=PREFIXED)",
    ):
        assert line in shown, shown
    assert "name=ord, patternType=PREFIXED" in matching.checked().stdout
    assert "name=*, patternType=LITERAL" in matching.stdout
    removed.checked()
    assert "name=orders" not in left.checked().stdout
    assert "name=ord," in left.stdout
