"""A cluster with TLS, logins and an authorizer everywhere, under the same faults as others. `chaos.py --secure` runs
long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.chaos import SERVES_AGAIN_SECONDS_MAX, TOPIC, run
from cluster.nemesis import Kill, KillController, Pause, RenewedCertificates
from harness.broker_log import check_log
from harness.secure_cluster import SecureCluster, log_in
from harness.tls import TlsWire
from harness.wire import Closed


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecureCluster]:
    cluster = SecureCluster(tmp_path)
    cluster.start()
    yield cluster
    cluster.close()
    for node in cluster:
        check_log(node)


def test_nothing_acknowledged_is_lost_while_nodes_die_certificates_change_and_logins_end(
    cluster: SecureCluster,
) -> None:
    faults = [Kill((0.0, 1.0)), KillController(), Pause((0.2, 1.0)), RenewedCertificates(cluster.renew_certificates)]
    outcome = run(cluster, faults, seconds=12, seed=1)
    assert outcome.report.is_clean, str(outcome)
    assert outcome.report.acknowledged > 500, outcome
    assert outcome.report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(outcome)
    assert set(cluster.leaders(TOPIC)) == set(range(6))
    for node in cluster:
        for port in (node.port, node.controller_port):
            assert not _gets_in(cluster, node.host, port, "node", "guessed"), "with TLS, but without the password"
    assert "node-secret" not in "".join(node.log for node in cluster)


def _gets_in(cluster: SecureCluster, host: str, port: int, user: str, password: str) -> bool:
    with TlsWire(host, port, cluster.certificates) as wire:
        try:
            log_in(wire, user, password)
        except (AssertionError, Closed):
            return False
    return True
