"""The small text files: Kafka's offset checkpoints, a partition's metadata, a log directory's meta.properties."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from tidemark.storage.errors import CorruptFile
from tidemark.storage.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_UP_TO = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
OURS = ".tidemark"

NO_BROKER_EPOCH = -1

_VERSION = "0"
TopicPartition = tuple[str, int]


def encode_lines(lines: list[str]) -> bytes:
    """Kafka's checkpoint form: a version, a count, the entries."""
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_lines(data: bytes, *, path: str) -> list[str]:
    if not data.endswith(b"\n"):  # torn within its last number, it would tell of another one
        raise CorruptFile(f"{path} ends in the middle of a line")
    try:
        version, count, *lines = data.decode().splitlines()
        expected = int(count)
    except ValueError as error:
        raise CorruptFile(f"{path} is no checkpoint file: {error}") from None
    lines = [line for line in lines if line]
    if version != _VERSION or len(lines) != expected:
        raise CorruptFile(f"{path} has version {version} and {len(lines)} of {count} entries")
    return lines


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty when there is none."""
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return {}
    offsets = {}
    for line in decode_lines(data, path=path):
        try:
            topic, partition, offset = line.rsplit(" ", 2)
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFile(f"{path} holds a line that is no 'topic partition offset': {line!r}") from None
    return offsets


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    files.replace(path, encode_lines(lines), sync=True)


def write_clean_shutdown(files: Files, path: str, *, broker_epoch: int) -> None:
    """The clean shutdown file, as Kafka writes it (KIP-966): it names the broker epoch of the life that ended."""
    files.replace(path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode(), sync=True)


def read_clean_shutdown(files: Files, path: str) -> int | None:
    """The broker epoch in the file, -1 if it names none; None when there is no file."""
    try:
        content = json.loads(files.read_all(path) or b"{}")  # older ones are empty
    except FileNotFoundError:
        return None
    except ValueError:
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def topic_id_text(topic_id: bytes) -> str:
    """Kafka prints ids as unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_id_bytes(text: str) -> bytes:
    topic_id = base64.urlsafe_b64decode(text + "==")
    if len(topic_id) != 16:
        raise ValueError(f"{text!r} is no 16-byte id")
    return topic_id


def write_partition_metadata(files: Files, path: str, topic_id: bytes) -> None:
    # Unsynced, and in place: there was none, or none that could be read. The log's first flush syncs the directory, and
    # a lost or torn file only means that we learn the id again.
    files.overwrite(path, encode_partition_metadata(topic_id))


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n".encode()


def read_partition_metadata(files: Files, path: str) -> bytes | None:
    """The topic's id, or None when the file is absent or was torn by a power cut (Kafka too starts without it)."""
    try:
        text = files.read_all(path).decode()
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        return topic_id_bytes(fields["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        return None


def read_properties(files: Files, path: str) -> dict[str, str]:
    """A Java properties file of the plain kind that meta.properties is; empty when there is none."""
    try:
        text = files.read_all(path).decode()
    except FileNotFoundError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(files: Files, path: str, properties: Mapping[str, str]) -> None:
    text = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    files.replace(path, text.encode(), sync=True)
