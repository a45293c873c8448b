from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.metadata.store import MetadataStore


@pytest.mark.parametrize(("is_leased", "is_isolated"), [(True, True), (True, False), (False, False)])
async def test_a_node_with_a_lease_or_contact_answers(tmp_path: Path, is_leased: bool, is_isolated: bool) -> None:
    store = MetadataStore(tmp_path, node_id=1)
    view = ClusterView(store, node_id=1, is_leased=lambda: is_leased, is_isolated=lambda: is_isolated)
    view.check_contact()
    assert view.unsure_of == (None if is_leased else 1)
    await store.close()


async def test_a_node_without_lease_and_contact_refuses_to_say_who_leads(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path, node_id=1)
    view = ClusterView(store, node_id=1, is_leased=lambda: False, is_isolated=lambda: True)
    assert view.unsure_of == 1
    with pytest.raises(CloseConnection):
        view.check_contact()
    await store.close()
