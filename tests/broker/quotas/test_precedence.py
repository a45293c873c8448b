from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.metadata.client_quotas import Entity
from tidemark.broker.quotas.precedence import Share, quota_of, quota_of_address

KEY = "producer_byte_rate"
# Kafka's order, most specific first, for the user ann with the client id app; and who shares each.
ORDER: list[tuple[Entity, Share]] = [
    ((("client-id", "app"), ("user", "ann")), Share("ann", "app")),
    ((("client-id", None), ("user", "ann")), Share("ann", "app")),
    ((("user", "ann"),), Share("ann", None)),
    ((("client-id", "app"), ("user", None)), Share("ann", "app")),
    ((("client-id", None), ("user", None)), Share("ann", "app")),
    ((("user", None),), Share("ann", None)),
    ((("client-id", "app"),), Share(None, "app")),
    ((("client-id", None),), Share(None, "app")),
]


@pytest.mark.parametrize(("first", "second"), list(combinations(range(len(ORDER)), 2)))
def test_of_two_quotas_the_more_specific_one_counts(first: int, second: int) -> None:
    quotas = {ORDER[second][0]: {KEY: 2.0}, ORDER[first][0]: {KEY: 1.0}}
    found = quota_of(quotas, KEY, user="ann", client_id="app")
    assert found == (1.0, ORDER[first][1])


NAMES = st.sampled_from([None, "ann", "app", "bob", "x"])
ENTITIES = st.one_of(
    st.tuples(st.tuples(st.just("client-id"), NAMES), st.tuples(st.just("user"), NAMES)),
    st.tuples(st.tuples(st.just("user"), NAMES)),
    st.tuples(st.tuples(st.just("client-id"), NAMES)),
)
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(st.sampled_from([KEY, "other"]), st.integers(1, 9), min_size=1))


@given(quotas=QUOTAS, user=st.sampled_from(["ann", "bob", "eve"]), client_id=st.sampled_from(["app", "x", ""]))
def test_whatever_quotas_there_are_the_first_of_the_order_counts(
    quotas: dict[Entity, dict[str, float]], user: str, client_id: str
) -> None:
    def named(entity: Entity) -> Entity:
        names = {"ann": user, "app": client_id}
        return tuple((kind, None if name is None else names[name]) for kind, name in entity)

    expected = next((quotas[named(each)][KEY] for each, _ in ORDER if KEY in quotas.get(named(each), {})), None)
    found = quota_of(quotas, KEY, user=user, client_id=client_id)
    assert (None if found is None else found.bound) == expected


def test_an_entity_that_lacks_the_key_leaves_it_to_the_next() -> None:
    quotas: dict[Entity, dict[str, float]] = {(("user", "ann"),): {"other": 1.0}, (("client-id", None),): {KEY: 7.0}}
    assert quota_of(quotas, KEY, user="ann", client_id="app") == (7.0, Share(None, "app"))
    assert quota_of(quotas, "third", user="ann", client_id="app") is None


def test_an_address_has_its_own_quota_or_the_default() -> None:
    quotas: dict[Entity, dict[str, float]] = {(("ip", "10.0.0.1"),): {KEY: 1.0}, (("ip", None),): {KEY: 2.0}}
    assert quota_of_address(quotas, KEY, "10.0.0.1") == 1.0
    assert quota_of_address(quotas, KEY, "10.0.0.2") == 2.0
    assert quota_of_address({}, KEY, "10.0.0.2") is None
