"""The pytest plugin, as a project that tests against Kafka uses it: pytest in a process of its own."""

from __future__ import annotations

import pytest


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    """Without schemathesis, which takes seconds to load."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis")


def test_each_test_gets_its_own_topic(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka import Consumer, Producer, TopicPartition

        seen = set()

        def roundtrip(broker, topic):
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce(topic, b"value")
            assert producer.flush(10) == 0
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
            consumer.assign([TopicPartition(topic, 0, 0)])
            [message] = consumer.consume(1, timeout=10)
            consumer.close()
            assert message.value() == b"value"
            assert message.offset() == 0

        def test_one(tidemark_broker, tidemark_topic):
            seen.add((tidemark_broker.bootstrap, tidemark_topic))
            roundtrip(tidemark_broker, tidemark_topic)

        def test_two(tidemark_broker, tidemark_topic):
            seen.add((tidemark_broker.bootstrap, tidemark_topic))
            roundtrip(tidemark_broker, tidemark_topic)
            assert len(seen) == 2
            assert len({bootstrap for bootstrap, _ in seen}) == 1
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_no_broker_is_loaded_until_it_is_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_of_the_broker_is_imported():
            assert "tidemark.pytest_plugin" in sys.modules
            assert "tidemark.broker.node" not in sys.modules
            assert "confluent_kafka" not in sys.modules
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_a_test_whose_broker_fails_fails_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import errno
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        def test_that_ignores_every_error(tidemark_broker, monkeypatch):
            from tidemark.raft import FileStorage

            def save(self, effects):
                raise OSError(errno.EIO, "the disk is gone")

            monkeypatch.setattr(FileStorage, "save", save)
            try:
                admin = AdminClient({"bootstrap.servers": tidemark_broker.bootstrap, "log_level": 0})
                admin.create_topics([NewTopic("t")], request_timeout=2)["t"].result(timeout=10)
            except KafkaException:
                pass

        def test_that_comes_after_it(tidemark_topic):
            pass

        def test_that_needs_no_broker():
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, errors=2)  # the first as it ends, the second as it starts
    result.stdout.fnmatch_lines(["*BrokerFailed: the embedded broker failed: OSError(5, 'the disk is gone')"])


def test_a_test_may_delete_its_topic_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka.admin import AdminClient

        def test_that_deletes(tidemark_broker, tidemark_topic):
            admin = AdminClient({"bootstrap.servers": tidemark_broker.bootstrap})
            admin.delete_topics([tidemark_topic])[tidemark_topic].result(timeout=10)
        """
    )
    run(pytester).assert_outcomes(passed=1)
