"""What `tidemark topics describe` shows: partitions, offsets and settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidemark.cli import client

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription


def describe_topics(admin: AdminClient, args: argparse.Namespace, names: Sequence[str]) -> list[dict[str, Any]]:
    """Topics as JSON-ready values, in the order of `names`."""
    from confluent_kafka import KafkaException, TopicCollection

    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=args.timeout)
    described = []
    for name in names:
        try:
            topic = futures[name].result()
            offsets = _offsets(admin, args, topic)
            described.append(_as_json(topic, offsets, _configs(admin, args, name)))
        except KafkaException as error:
            raise client.failure(error.args[0], about=f"Topic {name}", bootstrap=args.bootstrap) from None
    return described


def text_of(topic: dict[str, Any]) -> str:
    """A described topic as lines of text."""
    lines = [f"{topic['name']}  (id {topic['id']})" if topic["id"] else topic["name"]]
    lines += map(_line, topic["partitions"])
    lines += [f"{name} = {config['value']}" for name, config in topic["configs"].items()]
    return "\n".join(lines)


def _line(partition: dict[str, Any]) -> str:
    leader, start, end = (
        "none" if partition[key] is None else partition[key] for key in ("leader", "start_offset", "end_offset")
    )
    in_sync, replicas = (",".join(map(str, partition[key])) for key in ("isr", "replicas"))
    return (
        f"Partition {partition['partition']}: Leader={leader}, ISR=[{in_sync}], Replicas=[{replicas}],"
        f" Start={start}, End={end}"
    )


def _as_json(
    topic: TopicDescription, offsets: dict[int, tuple[int | None, int | None]], configs: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": _uuid_text(str(topic.topic_id)) if topic.topic_id else None,
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader else None,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
                "start_offset": offsets.get(partition.id, (None, None))[0],
                "end_offset": offsets.get(partition.id, (None, None))[1],
            }
            for partition in topic.partitions
        ],
        "configs": configs,
    }


def _offsets(
    admin: AdminClient, args: argparse.Namespace, topic: TopicDescription
) -> dict[int, tuple[int | None, int | None]]:
    from confluent_kafka.admin import OffsetSpec

    led = [partition.id for partition in topic.partitions if partition.leader]
    starts = _list_offsets(admin, args, topic.name, led, spec=OffsetSpec.earliest())
    ends = _list_offsets(admin, args, topic.name, led, spec=OffsetSpec.latest())
    return {partition: (starts.get(partition), ends.get(partition)) for partition in led}


def _list_offsets(
    admin: AdminClient, args: argparse.Namespace, topic: str, partitions: list[int], *, spec: OffsetSpec
) -> dict[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    if not partitions:
        return {}
    asked = {TopicPartition(topic, partition): spec for partition in partitions}
    offsets = {}
    for asked_partition, future in admin.list_offsets(asked, request_timeout=args.timeout).items():
        try:
            offsets[asked_partition.partition] = future.result().offset
        except KafkaException:
            continue  # a partition between leaders: shown without offsets
    return offsets


def _configs(admin: AdminClient, args: argparse.Namespace, name: str) -> dict[str, Any]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    [future] = admin.describe_configs([resource], request_timeout=args.timeout).values()
    return {
        entry.name: {"value": entry.value, "source": ConfigSource(entry.source).name}
        for entry in sorted(future.result().values(), key=lambda entry: entry.name)
        if args.all_configs or entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def _uuid_text(text: str) -> str:
    """As Kafka's tools write it: URL-safe base64. librdkafka uses the other two characters."""
    return text.replace("/", "_").replace("+", "-")
