"""What the pipeline asks a cluster itself: which topics there are, and from where to where their partitions go.

librdkafka's errors become sentences here. Settings are given once, by the names that librdkafka and the Java client
share; the few that differ are translated for Spark's connector.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidemark.client_security import for_java, for_librdkafka
from tidemark.failure import CommandFailed, ExitCode
from tidemark.wire_client import BadAddress, NoAnswer, parse_addresses, require_open_port

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

Partition = tuple[str, int]
TIMEOUT_S = 15.0
SHOWN_LOOK_EVERY_S = 0.05
BROKER_MAX_S = 900.0  # Kafka's transaction.max.timeout.ms, where a cluster does not tell its own


def client_settings(bootstrap: str, kafka: Mapping[str, str]) -> dict[str, Any]:
    """For librdkafka. Its log is off: what matters comes back from the calls."""
    return {"bootstrap.servers": bootstrap, "log_level": 0, **for_librdkafka(kafka)}


def java_settings(bootstrap: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """For Spark's connector: the Java client keeps user and password in a line of their own."""
    rest = {k: v for k, v in kafka.items() if k not in ("sasl.username", "sasl.password", "sasl.mechanisms")}
    if "sasl.mechanisms" in kafka:
        rest["sasl.mechanism"] = kafka["sasl.mechanisms"]
    if "sasl.username" in kafka:
        scram = rest.get("sasl.mechanism", "PLAIN").startswith("SCRAM")
        module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
        user, password = (_in_quotes(kafka.get(f"sasl.{each}", "")) for each in ("username", "password"))
        rest["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    rest = for_java(rest)
    return {f"kafka.{k}": v for k, v in {"bootstrap.servers": bootstrap, **rest}.items()}


def _in_quotes(text: str) -> str:
    """As Java's login configuration reads it: a backslash takes the next character as it is."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class ClusterAdmin:
    """One cluster, asked and changed through librdkafka, by the driver."""

    def __init__(self, bootstrap: str, kafka: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.kafka = dict(kafka)
        self._admin: AdminClient | None = None
        self._problems: list[str] = []

    @property
    def settings(self) -> dict[str, Any]:
        return client_settings(self.bootstrap, self.kafka)

    def require_reachable(self) -> None:
        """Fail at once, with the system's reason, where no address accepts connections."""
        try:
            require_open_port(parse_addresses(self.bootstrap), timeout_s=TIMEOUT_S)
        except BadAddress as error:
            raise CommandFailed(f"bootstrap: {error}.", code=ExitCode.USAGE) from None
        except NoAnswer as reason:
            message = f"No broker is reachable at {self.bootstrap}: {reason}."
            raise CommandFailed(message, code=ExitCode.NOT_REACHABLE) from None

    def topics(self) -> dict[str, list[int]]:
        """Every topic with its partitions."""
        from confluent_kafka import KafkaException

        try:
            listed = self.admin.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as error:
            raise self._failure(error.args[0]) from None
        return {name: sorted(topic.partitions) for name, topic in listed.items()}

    def matching(self, pattern: str) -> list[str]:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise CommandFailed(f"The pattern {pattern!r} cannot be used: {error}.", code=ExitCode.USAGE) from None
        return sorted(name for name in self.topics() if compiled.fullmatch(name) and not name.startswith("__"))

    def create_topic(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, str] | None = None
    ) -> None:
        """Creates it if it is missing; with its partitions left to the cluster if none are said."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(name, num_partitions=partitions or -1, replication_factor=-1, config=dict(config or {}))
        try:
            self.admin.create_topics([wanted], request_timeout=TIMEOUT_S)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise CommandFailed(f"The topic {name!r} cannot be created: {error.args[0].str()}.") from None

    def grow_topic(self, name: str, *, partitions: int) -> int:
        """How many it has once it has at least so many. The controller makes topics and partitions, and the broker that
        we ask may hear of it a moment later: one that it does not show is no reason to make it again."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewPartitions

        deadline, is_asked = time.monotonic() + TIMEOUT_S, False
        while (there := len(self.topics().get(name, ()))) < partitions:
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"The topic {name!r} has {there} partitions after {TIMEOUT_S:.0f} s, not {partitions}."
                )
            if there and not is_asked:
                is_asked = True
                try:
                    wanted = [NewPartitions(name, partitions)]
                    self.admin.create_partitions(wanted, request_timeout=TIMEOUT_S)[name].result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # it has them, and does not show them yet
                        raise
            time.sleep(SHOWN_LOOK_EVERY_S)
        return there

    def ranges(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """The first offset that a partition still holds, and the one after its last."""
        return self._ranges(partitions, "read_uncommitted")

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Up to where a read_committed reader may read now."""
        return {each: high for each, (_, high) in self._ranges(partitions, "read_committed").items()}

    def _ranges(self, partitions: Iterable[Partition], isolation: str) -> dict[Partition, tuple[int, int]]:
        from confluent_kafka import KafkaException, TopicPartition

        found = {}
        with self.consumer(**{"isolation.level": isolation}) as reader:
            for topic, index in partitions:
                try:
                    found[topic, index] = reader.get_watermark_offsets(TopicPartition(topic, index), timeout=TIMEOUT_S)
                except KafkaException as error:
                    raise self._failure(error.args[0]) from None
        return found

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of those topics that exist: a topic that was deleted and made anew has another."""
        from confluent_kafka import KafkaException, TopicCollection

        wanted = sorted(names)
        if not wanted:
            return {}
        answers = self.admin.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT_S)
        found = {}
        for name, answer in answers.items():
            try:
                found[name] = str(answer.result().topic_id)
            except KafkaException:
                continue  # gone, or not ours to see: who reads it is told by its own client
        return found

    def transaction_timeout_max_s(self) -> float:
        """The broker's transaction.max.timeout.ms; Kafka's default where we may not ask."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource

        try:
            node = next(iter(self.admin.list_topics(timeout=TIMEOUT_S).brokers))
            broker = ConfigResource(ConfigResource.Type.BROKER, str(node))
            told = self.admin.describe_configs([broker], request_timeout=TIMEOUT_S)[broker].result()
            return int(told["transaction.max.timeout.ms"].value) / 1000
        except (KafkaException, KeyError, ValueError, StopIteration):
            return BROKER_MAX_S

    def consumer(self, **settings: Any) -> Consumer:
        from confluent_kafka import Consumer

        # A group is demanded by the constructor; nothing joins it.
        wanted = {"group.id": "tidemark-pipeline", "enable.auto.commit": False, **settings}
        return Consumer({**self.settings, **wanted})

    @property
    def admin(self) -> AdminClient:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self.require_reachable()
            try:
                settings: dict[str, Any] = {**self.settings, "error_cb": self._note}
                self._admin = AdminClient(settings)
            except KafkaException as error:
                raise CommandFailed(f"kafka: {error.args[0].str()}.", code=ExitCode.USAGE) from None
        return self._admin

    def _note(self, error: Any) -> None:
        """Why a connection failed is only reported here; the call that waits for it just times out."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._problems.append(error.str())

    def _failure(self, error: Any) -> CommandFailed:
        while self._admin is not None and self._admin.poll(0):  # errors reach _note only while it is polled
            continue
        if self._problems:
            return CommandFailed(f"{self.bootstrap} refused us: {self._problems[-1].rstrip('.')}.")
        message = f"{self.bootstrap} accepts connections but did not answer as a Kafka broker in time ({error.str()})."
        return CommandFailed(message, code=ExitCode.NOT_REACHABLE)
