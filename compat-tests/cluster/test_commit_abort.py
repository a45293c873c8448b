"""Three nodes, transactions version 2: a transaction begins while the markers of the last one are on their way."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.cluster import Cluster
from harness.java_programs import SOURCES, run_cases

CASES = re.findall(r'cases\.put\("(\w+)",', (SOURCES / "CommitAbort.java").read_text())


def test_no_transaction_that_follows_another_at_once_fails(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster({"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"})
    assert run_cases("CommitAbort", cluster.bootstrap) == dict.fromkeys(CASES, "")
