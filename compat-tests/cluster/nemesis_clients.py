"""What clients do: change the cluster while others use it, and send what no client should."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from random import Random

from cluster.hostile_requests import HOSTILE
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from harness.cluster import Cluster

SECONDS_MAX = 30


class Changes:
    """A topic beside the watched one is made, filled, cut in the middle of a batch, changed, deleted and made again.
    Settings of the watched one change meanwhile, back and forth."""

    name = "topics, records and settings change"

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._number = 0

    def __call__(self, cluster: Cluster, random: Random) -> None:
        cluster.forget_admin()
        admin = cluster.admin()
        self._number += 1
        name = f"beside-{self._number % 3}"
        self._make(admin, name)
        self._fill(cluster, name, records=random.randint(50, 500))
        middle = TopicPartition(name, 0, random.randint(1, 40))
        admin.delete_records([middle])[middle].result(SECONDS_MAX)
        for minimum in random.sample(["1", "2", "3"], 2):
            self._set(admin, name, "min.insync.replicas", minimum)
        self._set(admin, self._topic, "flush.messages", random.choice(["1", "9223372036854775807"]))
        self._set(admin, self._topic, "segment.bytes", random.choice(["1048576", "1073741824"]))
        if random.random() < 0.7:
            admin.delete_topics([name])[name].result(SECONDS_MAX)

    def _make(self, admin: AdminClient, name: str) -> None:
        wanted = NewTopic(name, 4, 3, config={"flush.messages": "1"})
        deadline = time.monotonic() + SECONDS_MAX
        while True:  # it may be there from last time
            try:
                admin.create_topics([wanted])[name].result(SECONDS_MAX)
                return
            except Exception as error:
                if "exists" in str(error).lower():
                    return
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _fill(self, cluster: Cluster, name: str, *, records: int) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 50, "log_level": 2}
        producer = Producer({**settings, **cluster.client})
        for number in range(records):
            producer.produce(name, b"x" * 100 + b"%d" % number, partition=0)
        assert producer.flush(SECONDS_MAX) == 0

    def _set(self, admin: AdminClient, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


class HostileRequests:
    """What no client should send (`hostile_requests.py`), to clients' listeners and to the controllers'."""

    name = "hostile requests"

    def __call__(self, cluster: Cluster, random: Random) -> None:
        ports = [(node.host, port) for node in cluster for port in (node.port, node.controller_port)]
        opened: list[socket.socket] = []
        end = time.monotonic() + random.uniform(3.0, 6.0)
        while time.monotonic() < end:
            host, port = random.choice(ports)
            with suppress(OSError):
                connected = socket.create_connection((host, port), timeout=1)
                connected.sendall(random.choice(HOSTILE)(random))
                opened.append(connected)
            if len(opened) > 50:
                opened.pop(random.randrange(len(opened))).close()
        for each in opened:
            each.close()
