from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.metadata.store import MetadataStore


async def test_only_who_has_no_lease_and_hears_nobody_refuses_to_say_who_leads(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path, node_id=1)
    cluster = ClusterView(store, node_id=1)
    cluster.check_contact()
    assert cluster.unsure_of is None
    cluster.is_isolated = lambda: True
    cluster.check_contact()
    cluster.is_leased = lambda: False
    assert cluster.unsure_of == 1
    with pytest.raises(CloseConnection):
        cluster.check_contact()
    cluster.is_isolated = lambda: False
    cluster.check_contact()
    await store.close()
