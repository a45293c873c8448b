"""Topics and their partitions on this node: traffic, sizes, offsets, and which lack replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metrics.exposition import Collected, Labels, Sample, Samples, labels
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.broker.replication.cleaner import Cleaner
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.scrubber import Scrubber
from tidemark.broker.replication.traffic import TopicTraffic

_TRAFFIC: Final = "kafka_server_brokertopicmetrics"
_REPLICAS: Final = "kafka_server_replicamanager"
_LOG: Final = "kafka_log_log"
_BY_PARTITION: Final = ("topic", "partition")
STEP: Final = 32  # partitions between two looks at the clock


def _traffic(name: str, help: str) -> Metric:
    return Metric(name=f"{_TRAFFIC}_{name}", kind=Kind.COUNTER, labels=("topic",), help=help)


def _replicas(name: str, help: str) -> Metric:
    return Metric(name=f"{_REPLICAS}_{name}", kind=Kind.GAUGE, help=help)


def _log(name: str, help: str) -> Metric:
    return Metric(name=f"{_LOG}_{name}", kind=Kind.GAUGE, labels=_BY_PARTITION, help=help)


MESSAGES_IN: Final = _traffic("messagesin", "Records appended here as the leader.")
BYTES_IN: Final = _traffic("bytesin", "Bytes appended here as the leader, as they are stored (compressed).")
BYTES_OUT: Final = _traffic("bytesout", "Bytes of records sent to consumers.")
MESSAGES_OUT: Final = _traffic(
    "messagesout",
    "Records sent to consumers, by their offsets: those that compaction took away between others count, too, and what a"
    " fetch from the middle of a batch gets of it counts from there.",
)
REPLICATION_IN: Final = _traffic("replicationbytesin", "Bytes appended here as a follower.")
REPLICATION_OUT: Final = _traffic("replicationbytesout", "Bytes of records sent to followers.")

PARTITIONS: Final = _replicas("partitioncount", "Replicas on this node, led or followed.")
LEADERS: Final = _replicas("leadercount", "Partitions that this node leads.")
UNDER_REPLICATED: Final = _replicas(
    "underreplicatedpartitions", "Partitions led here that have fewer in-sync replicas than replicas."
)
UNDER_MIN_ISR: Final = _replicas(
    "underminisrpartitioncount", "Partitions led here that have fewer in-sync replicas than min.insync.replicas."
)
AT_MIN_ISR: Final = _replicas(
    "atminisrpartitioncount",
    "Partitions led here, of more than one replica, that have just as many in-sync replicas as min.insync.replicas.",
)
OFFLINE_REPLICAS: Final = _replicas("offlinereplicacount", "Replicas on this node whose log cannot be used.")
PRODUCERS: Final = _replicas("produceridcount", "Producers that logs on this node remember, for idempotence.")
OFFLINE_DIRECTORIES: Final = Metric(
    name="kafka_log_logmanager_offlinelogdirectorycount", kind=Kind.GAUGE, help="Log directories that are offline."
)
SIZE: Final = _log("size", "Bytes of the log of a replica on this node.")
START: Final = _log("logstartoffset", "The first offset of a replica's log.")
END: Final = _log("logendoffset", "The offset after the last record of a replica's log.")
HIGH_WATERMARK: Final = Metric(
    name="kafka_cluster_partition_highwatermark",
    kind=Kind.GAUGE,
    labels=_BY_PARTITION,
    help="The offset up to which consumers may read, as this replica knows it.",
)
SEGMENTS: Final = _log("numlogsegments", "Segments of a replica's log.")
PARTITION_UNDER_REPLICATED: Final = Metric(
    name="kafka_cluster_partition_underreplicated",
    kind=Kind.GAUGE,
    labels=_BY_PARTITION,
    help="1 for a partition led here that has fewer in-sync replicas than replicas. Only those are listed.",
)
FLUSHES: Final = Metric(
    name="kafka_log_logflushstats_logflushtime_seconds", kind=Kind.SUMMARY, help="Syncs of logs to disk."
)
UNCLEANABLE: Final = Metric(
    name="kafka_log_logcleanermanager_uncleanablepartitionscount",
    kind=Kind.GAUGE,
    help="Compacted logs that cannot be cleaned until the next start.",
)
CLEANED: Final = Metric(
    name="kafka_log_logcleaner_cleanedlogs", kind=Kind.COUNTER, help="Logs that were cleaned, and by how much below."
)
CLEANED_BYTES: Final = Metric(
    name="kafka_log_logcleaner_readbytes", kind=Kind.COUNTER, help="Bytes of records that the cleaner went through."
)
KEPT_BYTES: Final = Metric(
    name="kafka_log_logcleaner_keptbytes", kind=Kind.COUNTER, help="Of them, bytes that were kept."
)

SCRUBBED: Final = Metric(
    name="tidemark_scrubber_logs", kind=Kind.COUNTER, help="Logs that the scrubber has read from end to end."
)
MENDED: Final = Metric(
    name="tidemark_scrubber_mended_segments",
    kind=Kind.COUNTER,
    help="Segments whose indexes were damaged and made anew.",
)
DAMAGED: Final = Metric(
    name="tidemark_scrubber_damaged_logs",
    kind=Kind.COUNTER,
    help="Logs with damaged batches, which are not served from here any more.",
)
SCRUB_AGE: Final = Metric(
    name="tidemark_scrubber_oldest_seconds",
    kind=Kind.GAUGE,
    help="Since the log that was not read for longest was, of those that were read at all.",
)

ValueOf = Callable[[Replica], int]
BY_PARTITION: Final[tuple[tuple[Metric, ValueOf], ...]] = (
    (SIZE, lambda replica: replica.log.size_bytes),
    (START, lambda replica: replica.log.start_offset),
    (END, lambda replica: replica.log.end_offset),
    (HIGH_WATERMARK, lambda replica: replica.high_watermark),
    (SEGMENTS, lambda replica: replica.log.segment_count),
)
SUMMED: Final = (SIZE, SEGMENTS)  # where topics are told as a whole, or all of them as one
BY_TOPIC: Final = (
    (MESSAGES_IN, "records_in"),
    (BYTES_IN, "bytes_in"),
    (BYTES_OUT, "bytes_out"),
    (MESSAGES_OUT, "records_out"),
    (REPLICATION_IN, "replication_bytes_in"),
    (REPLICATION_OUT, "replication_bytes_out"),
)


class TopicMetrics:
    METRICS: Final = (
        *(metric for metric, _ in BY_TOPIC),
        PARTITIONS,
        LEADERS,
        UNDER_REPLICATED,
        UNDER_MIN_ISR,
        AT_MIN_ISR,
        OFFLINE_REPLICAS,
        OFFLINE_DIRECTORIES,
        PARTITION_UNDER_REPLICATED,
        *(metric for metric, _ in BY_PARTITION),
        PRODUCERS,
        FLUSHES,
        UNCLEANABLE,
        CLEANED,
        CLEANED_BYTES,
        KEPT_BYTES,
        SCRUBBED,
        MENDED,
        DAMAGED,
        SCRUB_AGE,
    )

    def __init__(self, table: ReplicaTable, cleaner: Cleaner, scrubber: Scrubber, *, detail: Callable[[], str]) -> None:
        """`detail`: what tidemark.metrics.detail says."""
        self._scrubber = scrubber
        self._table = table
        self._cleaner = cleaner
        self._detail = detail

    def collect(self) -> Collected:
        found = _Findings(self._detail(), past=self._table.past_traffic)
        for hosted in list(self._table.topics.values()):
            yield from found.look_at(hosted)
        offline = self._table.offline_directories
        return [
            *found.samples(),
            *((metric, [("", total)]) for metric, total in found.totals().items()),
            (OFFLINE_DIRECTORIES, [("", len(offline))]),
            (PARTITION_UNDER_REPLICATED, found.lacking),
            (FLUSHES, [("", (found.flush_seconds, found.flushes))]),
            (UNCLEANABLE, [("", len(self._cleaner.uncleanable))]),
            (CLEANED, [("", self._cleaner.cleaned_logs)]),
            (CLEANED_BYTES, [("", self._cleaner.bytes_before)]),
            (KEPT_BYTES, [("", self._cleaner.bytes_after)]),
            (SCRUBBED, [("", self._scrubber.read_logs)]),
            (MENDED, [("", self._scrubber.mended_segments)]),
            (DAMAGED, [("", self._scrubber.damaged_logs)]),
            (SCRUB_AGE, [("", self._scrubber.oldest_seconds())]),
        ]


class _Findings:
    """One pass over all topics: a partition's labels are made once, for all its metrics."""

    def __init__(self, detail: str, *, past: TopicTraffic) -> None:
        self._detail = detail
        told = [each for each in BY_PARTITION if detail == "partition" or each[0] in SUMMED]
        self._by_partition: list[tuple[Metric, dict[Labels, int], ValueOf]] = [
            (metric, {}, value_of) for metric, value_of in told
        ]
        self._by_topic: dict[Metric, dict[Labels, int]] = {
            metric: {"": getattr(past, name)} if detail == "broker" else {} for metric, name in BY_TOPIC
        }
        self.lacking: list[Sample] = []
        self._replicas = self._led = self._producers = self._offline = 0
        self._under_replicated = self._under_min_isr = self._at_min_isr = 0
        self.flushes, self.flush_seconds = past.flushes, past.flush_seconds

    def samples(self) -> list[tuple[Metric, Samples]]:
        tables = (*self._by_topic.items(), *((metric, values) for metric, values, _ in self._by_partition))
        return [(metric, values.items()) for metric, values in tables]

    def totals(self) -> dict[Metric, int]:
        return {
            PARTITIONS: self._replicas,
            LEADERS: self._led,
            UNDER_REPLICATED: self._under_replicated,
            UNDER_MIN_ISR: self._under_min_isr,
            AT_MIN_ISR: self._at_min_isr,
            OFFLINE_REPLICAS: self._offline,
            PRODUCERS: self._producers,
        }

    def look_at(self, hosted: HostedTopic) -> Job[None]:
        name = "" if self._detail == "broker" else f'topic="{hosted.name}"'  # which needs no escaping
        self._offline += len(hosted.offline)  # that could not be opened; others' logs failed since
        for number, partition in enumerate(list(hosted.partitions.values())):
            self._look_at_led(partition)
            if not number % STEP:
                yield
        for number, replica in enumerate(hosted.replicas()):
            self._look_at_replica(replica, name)
            if not number % STEP:
                yield
        traffic = hosted.traffic
        self.flushes += traffic.flushes
        self.flush_seconds += traffic.flush_seconds
        for metric, attribute in BY_TOPIC:
            values = self._by_topic[metric]
            values[name] = values.get(name, 0) + getattr(traffic, attribute)

    def _look_at_replica(self, replica: Replica, topic: Labels) -> None:
        self._replicas += 1
        self._offline += replica.log.is_offline
        self._producers += len(replica.log.producer_states)
        name = f'{topic},partition="{replica.index}"' if self._detail == "partition" else topic
        for _, values, value_of in self._by_partition:
            values[name] = values.get(name, 0) + value_of(replica)

    def _look_at_led(self, partition: Partition) -> None:
        partition.count_records()
        leadership = partition.leadership
        self._led += 1
        if len(leadership.isr) < len(leadership.replicas):
            self._under_replicated += 1
            if self._detail == "partition":
                self.lacking.append((labels(topic=partition.topic, partition=partition.index), 1))
        wanted = min(partition.config.min_insync_replicas, len(leadership.replicas))
        self._under_min_isr += partition.too_few_in_sync
        self._at_min_isr += len(leadership.isr) == wanted and len(leadership.replicas) > 1
