from __future__ import annotations

from typing import Any

from registered_brokers import features

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.broker_registration import Listener

VERSIONS = range(5)  # each in turn, with a broker id of its own
CLEAN_STOPS_FROM = 3


async def test_a_broker_gets_an_epoch_and_stays_fenced(cluster: Any) -> None:
    for version in VERSIONS:
        broker_id = 10 + version
        answer = await cluster.register(broker_id, version=version, rack="r", features=features(some_feature=(0, 3)))
        assert answer.error_code == ErrorCode.NONE
        registered = cluster.image.brokers[broker_id]
        assert (registered.broker_epoch, registered.fenced, registered.rack) == (answer.broker_epoch, True, "r")
        assert set(registered.endpoints) == {"PLAINTEXT"}
        assert registered.features["some.feature"] == (0, 3)


async def test_a_repeated_request_gets_the_same_epoch_and_another_life_a_new_one(cluster: Any) -> None:
    for version in VERSIONS:
        first = await cluster.register(10 + version, version=version)
        again = await cluster.register(10 + version, version=version)
        assert again.broker_epoch == first.broker_epoch
        other = await cluster.register(10 + version, version=version, incarnation_id=b"x" * 16)
        assert other.broker_epoch > first.broker_epoch


async def test_a_second_broker_with_the_id_of_a_live_one_is_refused(cluster: Any) -> None:
    await cluster.join(2)
    for version in VERSIONS:
        answer = await cluster.register(2, version=version, incarnation_id=b"x" * 16)
        assert (answer.error_code, answer.broker_epoch) == (ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1)
        assert cluster.image.brokers[2].broker_epoch == cluster.epochs[2]


async def test_a_broker_of_another_cluster_or_with_a_strange_listener_is_refused(cluster: Any) -> None:
    strange = [Listener(name="PLAINTEXT", host="h", port=1, security_protocol=each) for each in (-1, 4)]
    for version in VERSIONS:
        answer = await cluster.register(2, version=version, cluster_id="another")
        assert (answer.error_code, answer.broker_epoch) == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1)
        for listener in strange:
            answer = await cluster.register(2, version=version, listeners=[listener])
            assert (answer.error_code, answer.broker_epoch) == (ErrorCode.INVALID_REGISTRATION, -1)
    assert 2 not in cluster.image.brokers


async def test_a_broker_that_cannot_do_what_the_cluster_does_is_refused(cluster: Any) -> None:
    for version in VERSIONS:
        answer = await cluster.register(2, version=version, features=features(transaction_version=(0, 1)))
        assert (answer.error_code, answer.broker_epoch) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert 2 not in cluster.image.brokers


async def test_a_broker_that_did_not_stop_cleanly_is_not_eligible_to_lead(cluster: Any) -> None:
    for version in VERSIONS:
        broker_id, topic = 10 + version, f"t{version}"
        await cluster.join(broker_id)
        await cluster.create(topic, [broker_id])
        await cluster.heartbeat(broker_id, want_fence=True)
        before = cluster.partition(topic)
        assert broker_id in before.isr + before.elr
        clean = {"previous_broker_epoch": cluster.epochs[broker_id]} if version >= CLEAN_STOPS_FROM else {}
        cluster.end_session(broker_id)
        answer = await cluster.register(broker_id, version=version, incarnation_id=b"x" * 16, **clean)
        assert answer.error_code == ErrorCode.NONE
        after = cluster.partition(topic)
        assert (broker_id in after.isr + after.elr) == (version >= CLEAN_STOPS_FROM)
