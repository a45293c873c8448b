"""Rules of KIP-371. The cases are those of its text."""

from __future__ import annotations

import pytest

from tidemark.broker.config import ConfigError
from tidemark.broker.tls.principal_mapping import NoRuleMatches, PrincipalMapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=Kafka1,ou=SME", "kafka1"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ],
)
def test_the_first_rule_that_matches_counts(name, principal) -> None:
    assert PrincipalMapping(RULES).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1/U", "CN=ann", "ANN"),
        ("RULE:^CN=(.*)$/\\$1-$1/", "CN=ann", "$1-ann"),
        ("RULE:^CN=(.*)$/$1$2/", "CN=ann", "ann$2"),
        ("RULE:^CN=a\\/(.*)$/$1/ , DEFAULT", "CN=a/b", "b"),
        ("RULE:^X$/x/\nRULE:^CN=(.*?), .*$/$1/", "CN=ann, O=x", "ann"),
    ],
)
def test_rules_are_written_as_in_java(rules, name, principal) -> None:
    assert PrincipalMapping(rules).name_of(name) == principal


def test_a_client_that_no_rule_names_is_refused() -> None:
    with pytest.raises(NoRuleMatches, match="CN=bob"):
        PrincipalMapping("RULE:^CN=ann$/ann/").name_of("CN=bob")


@pytest.mark.parametrize("rules", ["RULE:only", "RULE:(/x/", "DEFAULT,nonsense", "RULE:a/b/X"])
def test_what_is_no_rule_is_refused(rules) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
