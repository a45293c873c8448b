"""Nodes of a cluster that serve HTTP, too."""

from __future__ import annotations

from typing import Any

import httpx
from harness.cluster import ClusterNode
from harness.ports import free_port

FAST = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
}


class HttpNode(ClusterNode):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.settings = {**self.settings, "http.listeners": self.url.replace("http", "HTTP", 1)}
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=20, follow_redirects=True)
