"""What has gone through a topic on this node since it started: plain counters, read by the metrics."""

from __future__ import annotations


class TopicTraffic:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "flush_seconds",
        "flushes",
        "records_in",
        "records_out",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0  # appended here as the leader: by producers, and by the broker itself
        self.records_in = 0  # see `Partition.count_records`
        self.bytes_out = 0  # to consumers
        self.records_out = 0  # likewise: by offsets, so those that compaction took away between others count, too
        self.replication_bytes_in = 0  # as a follower
        self.replication_bytes_out = 0  # to followers
        self.flushes = 0
        self.flush_seconds = 0.0

    def add(self, other: TopicTraffic) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
