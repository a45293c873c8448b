"""Record Apache Kafka's answers to the table of `acl_cases`: needs the jars of `make jars`, takes about a minute.

    .venv/bin/python tests/broker/support/record_kafka_acls.py

writes tests/broker/security/recorded/kafka-answers.json, which test_kafka_answers replays against Tidemark.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "compat-tests")]

from acl_answers import digest  # noqa: E402
from acl_cases import GROUP, ROOT, TOKEN_OWNER, TOKEN_SECRET, TOPIC, TXN, User, World, users  # noqa: E402
from acl_cases_tokens import create_request, describe_request  # noqa: E402
from harness.java import JARS, JAVA, classpath  # noqa: E402
from harness.ports import free_port  # noqa: E402

from tidemark.broker.config.broker_settings import STANDARD_AUTHORIZER  # noqa: E402
from tidemark.protocol.messages import (  # noqa: E402  # noqa: E402
    create_acls,
    create_topics,
    describe_acls,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
)
from tidemark.protocol.schema import api, codec  # noqa: E402

RECORDED = HERE.parent / "security" / "recorded" / "kafka-answers.json"
START_SECONDS_MAX = 60
PASSWORD = "secret"


class Connection:
    """One user's."""

    def __init__(self, port: int, user: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._send(struct.pack(">hhihh", 17, 1, 1, -1, 5) + b"PLAIN")
        self._receive()
        token = f"\0{user}\0{PASSWORD}".encode()
        self._send(struct.pack(">hhihi", 36, 0, 2, -1, len(token)) + token)
        (code,) = struct.unpack_from(">h", self._receive(), 4)
        assert code == 0, f"{user} was not let in: {code}"

    def ask(self, request: Any, version: int) -> Any:
        declared = api(type(request))
        out = bytearray(struct.pack(">hhih", declared.key, version, 7, -1))
        if version in declared.flexible:
            out.append(0)
        codec(type(request), version).encode(request, out)
        self._send(bytes(out))
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.removesuffix("Request") + "Response")
        frame = self._receive()
        return codec(response, version).decode(memoryview(frame), 5 if version in api(response).flexible else 4)

    def close(self) -> None:
        self.socket.close()

    def _send(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)


class Kafka:
    """One broker with PLAIN users and the StandardAuthorizer."""

    def __init__(self, directory: Path, names: Iterable[str]) -> None:
        self.port, self.controller_port = free_port(), free_port()
        jaas = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{ROOT}" password="{PASSWORD}"'
        )
        jaas += "".join(f' user_{name}="{PASSWORD}"' for name in sorted(set(names) | {ROOT})) + ";"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
            "listener.name.controller.plain.sasl.jaas.config": jaas,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ROOT}",
            "log.dirs": directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
            "delegation.token.secret.key": TOKEN_SECRET,
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        format_arguments = ("format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties), "--standalone")
        self._log = (directory / "kafka.log").open("wb")
        subprocess.run(_java("kafka.tools.StorageTool", *format_arguments), check=True, stdout=self._log)
        self._process = subprocess.Popen(
            _java("kafka.Kafka", str(properties)), stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )

    def connect(self, user: str, *, controller: bool = False) -> Connection:
        return Connection(self.controller_port if controller else self.port, user)

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                root = self.connect(ROOT)
                if root.ask(metadata.MetadataRequest(topics=[]), 9).brokers:
                    return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
            time.sleep(0.2)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


def _java(main: str, *arguments: str) -> list[str]:
    return [*JAVA, "-Xmx512m", "-cp", classpath(), main, *arguments]


def creations(user: User) -> list[create_acls.AclCreation]:
    return [
        create_acls.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user.name}",
            host=host,
            operation=operation,
            permission_type=permission,
        )
        for operation, kind, name, pattern, host, permission, _ in user.acls
    ]


def prepare(root: Any, everyone: list[User]) -> World:
    """The topic, the group, the transactional id and the entries that the cases speak of."""
    topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    root.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    wanted = [creation for user in everyone for creation in creations(user)]
    for begin in range(0, len(wanted), 200):
        answer = root.ask(create_acls.CreateAclsRequest(creations=wanted[begin : begin + 200]), 3)
        assert not any(each.error_code for each in answer.results)
    for key_type, key in ((0, GROUP), (1, TXN)):
        sought = find_coordinator.FindCoordinatorRequest(key_type=key_type, key=key)
        until(lambda sought=sought: root.ask(sought, 3).error_code == 0)
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    commit = offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    until(lambda: root.ask(commit, 8).topics[0].partitions[0].error_code == 0)
    begin_txn = init_producer_id.InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000)
    until(lambda: root.ask(begin_txn, 4).error_code == 0)
    all_acls = describe_acls.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    until(lambda: sum(len(each.acls) for each in root.ask(all_acls, 3).resources) >= len(set(map(repr, wanted))))
    token = root.ask(create_request(TOKEN_OWNER), 3)
    until(lambda: root.ask(describe_request(), 3).tokens)
    known = root.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]), 12)
    return World(topic_id=bytes(known.topics[0].topic_id), token_hmac=bytes(token.hmac))


def until(condition: Any) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def record(kafka: Kafka) -> dict[str, dict[str, list[str]]]:
    everyone = list(users())
    world = prepare(kafka.connect(ROOT), everyone)
    answers: dict[str, dict[str, list[str]]] = {}
    for user in everyone:
        connection = kafka.connect(user.name, controller=user.case.on_controller)
        try:
            answer = connection.ask(user.case.ask(world), user.case.version)
            told = digest(answer, version=user.case.version, topic_id=world.topic_id)
        except ConnectionResetError:
            told = ["closed"]
        connection.close()
        answers.setdefault(user.case.name, {})[user.state] = told
    return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        kafka = Kafka(Path(directory), (user.name for user in users()))
        try:
            kafka.wait()
            answers = record(kafka)
        finally:
            kafka.stop()
    version = next(JARS.glob("kafka-clients-*.jar")).stem.removeprefix("kafka-clients-")
    RECORDED.parent.mkdir(exist_ok=True)
    lines = [f" {json.dumps(name)}: {json.dumps(states, indent=None)}" for name, states in sorted(answers.items())]
    head, body = f'{{"kafka": "{version}",', ",\n".join(lines)
    RECORDED.write_text(f'{head}\n"answers": {{\n{body}\n}}}}\n')
    print(f"{sum(map(len, answers.values()))} answers of Apache Kafka {version} in {RECORDED}")


if __name__ == "__main__":
    main()
