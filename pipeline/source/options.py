"""The options of `format("tidemark")`: those of Spark's Kafka source, under the same names, and a few more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tidemark.client_security import BadSecurity, ClientSecurity
from tidemark.pipeline.source.client import EARLIEST, LATEST, ReadFailed, TopicPartition, addresses

T = TypeVar("T")
Access = Literal["auto", "files", "protocol"]
FETCH_BYTES = 4 << 20
TIMEOUT_MS = 30_000

_BOUNDS = {"earliest": EARLIEST, "latest": LATEST}
_TRUTH = {"true": True, "false": False}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h)?")
_SECURITY = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")
_JAAS = re.compile(r'\b(?P<name>username|password)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"')
_UNITS_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions to read: exactly one of these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to start or end: a bound for all, offsets or times per partition, or one time for all."""

    bound: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int | None = None
    times: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    bootstrap: str
    selection: Selection
    starting: Position
    ending: Position
    latest_if_no_time: bool  # startingOffsetsByTimestampStrategy=latest
    fail_on_data_loss: bool
    with_headers: bool
    committed: bool
    partitions_min: int | None
    partition_records_max: int | None
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_ms_max: int
    access: Access
    moved: tuple[tuple[str, str], ...]  # where a broker's directories are mounted here
    fetch_bytes: int
    timeout_ms: int
    security: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold passwords
    stream_end: Mapping[TopicPartition, int] = field(default_factory=dict)  # a stream goes no further than this
    lake: str | None = None  # where to read what the topics no longer have


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Options by name, in any case. Raises ReadFailed with a sentence that names the option."""
    options = {key.lower(): value for key, value in given.items()}
    bootstrap = options.get("kafka.bootstrap.servers", "")
    if not bootstrap:
        raise ReadFailed("Option kafka.bootstrap.servers is needed: the brokers' addresses, host:port,host:port.")
    addresses(bootstrap)
    security = _security(options)
    starting = _position(options, "starting", default=LATEST if streaming else EARLIEST)
    ending = _position(options, "ending", default=LATEST)
    if streaming and any(key.startswith("ending") for key in options):
        raise ReadFailed("A stream has no end: leave out the options endingOffsets, endingTimestamp and the like.")
    if not streaming and starting.bound == LATEST:
        raise ReadFailed("startingOffsets: a batch cannot start at the latest offset.")
    if ending.bound == EARLIEST or EARLIEST in ending.offsets.values():
        raise ReadFailed("endingOffsets: nothing can end at the earliest offset.")
    return ReadOptions(
        bootstrap=bootstrap,
        security=security,
        selection=_selection(options),
        starting=starting,
        ending=ending,
        latest_if_no_time=_one_of(options, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}),
        fail_on_data_loss=_one_of(options, "failOnDataLoss", _TRUTH, default="true"),
        with_headers=_one_of(options, "includeHeaders", _TRUTH, default="false"),
        committed=_one_of(options, "kafka.isolation.level", {"read_uncommitted": False, "read_committed": True}),
        partitions_min=_count(options, "minPartitions"),
        partition_records_max=_count(options, "maxRecordsPerPartition"),
        trigger_offsets_max=_count(options, "maxOffsetsPerTrigger"),
        trigger_offsets_min=_count(options, "minOffsetsPerTrigger"),
        trigger_delay_ms_max=_duration_ms(options, "maxTriggerDelay", default="15m"),
        access=_one_of(options, "tidemark.access", {"auto": "auto", "files": "files", "protocol": "protocol"}),
        moved=_moved(options),
        fetch_bytes=_count(options, "kafka.max.partition.fetch.bytes") or FETCH_BYTES,
        timeout_ms=_count(options, "kafka.request.timeout.ms") or TIMEOUT_MS,
        stream_end=_by_partition(options.get("tidemark.stream.end", "{}"), "tidemark.stream.end"),
        lake=options.get("tidemark.lake", "").strip() or None,
    )


def _security(options: Mapping[str, str]) -> dict[str, str]:
    """kafka.security.protocol, kafka.ssl.… and kafka.sasl.…, as for Spark's Kafka source."""
    given = {key.removeprefix("kafka."): text for key, text in options.items() if key.startswith(_SECURITY)}
    for found in _JAAS.finditer(given.pop("sasl.jaas.config", "")):
        given[f"sasl.{found['name']}"] = re.sub(r"\\(.)", r"\1", found["value"])
    try:
        ClientSecurity(given)
    except BadSecurity as error:
        raise ReadFailed(str(error)) from None
    return given


def _one_of(options: Mapping[str, str], name: str, choices: Mapping[str, T], *, default: str = "") -> T:
    text = options.get(name.lower(), default or next(iter(choices))).strip().lower()
    if text not in choices:
        raise ReadFailed(f"{name}: {text!r} is none of {', '.join(choices)}.")
    return choices[text]


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise ReadFailed(f"{name}: {text!r} is no number above zero.")
    return int(text)


def _duration_ms(options: Mapping[str, str], name: str, *, default: str) -> int:
    text = options.get(name.lower(), default).strip()
    found = _DURATION.fullmatch(text)
    if not found:
        raise ReadFailed(f"{name}: {text!r} is no duration such as 500ms, 30s or 15m.")
    return int(found[1]) * _UNITS_MS[found[2]]


def _selection(options: Mapping[str, str]) -> Selection:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if options.get(name.lower(), "").strip()]
    if len(given) != 1:
        raise ReadFailed("Exactly one of the options subscribe, subscribePattern and assign must say what to read.")
    text = options[given[0].lower()].strip()
    if given[0] == "subscribe":
        return Selection(topics=tuple(each.strip() for each in text.split(",") if each.strip()))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ReadFailed(f"subscribePattern: {text!r} is no regular expression: {error}.") from error
        return Selection(pattern=text)
    found = _json(text, "assign")
    if not all(isinstance(each, list) and all(isinstance(one, int) for one in each) for each in found.values()):
        raise ReadFailed('assign: write {"topic": [0, 1], …}.')
    return Selection(assigned=tuple((topic, one) for topic, which in found.items() for one in which))


def _position(options: Mapping[str, str], which: Literal["starting", "ending"], *, default: int) -> Position:
    """A time for all goes before times, and those before offsets, as in Spark's Kafka source."""
    if time := options.get(f"{which}timestamp"):
        if not time.strip().isdigit():
            raise ReadFailed(f"{which}Timestamp: {time!r} is no number of milliseconds since 1970.")
        return Position(time=int(time))
    if times := options.get(f"{which}offsetsbytimestamp"):
        return Position(times=_by_partition(times, f"{which}OffsetsByTimestamp"))
    text = options.get(f"{which}offsets", "").strip()
    if not text:
        return Position(bound=default)
    if text.lower() in _BOUNDS:
        return Position(bound=_BOUNDS[text.lower()])
    return Position(offsets=_by_partition(text, f"{which}Offsets"))


def _by_partition(text: str, name: str) -> dict[TopicPartition, int]:
    found = _json(text, name)
    try:
        return {
            (topic, int(partition)): int(value)
            for topic, values in found.items()
            for partition, value in values.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ReadFailed(f'{name}: write {{"topic": {{"0": 23, "1": -2}}, …}}.') from error


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ReadFailed(f"{name}: {text!r} is neither a known word nor JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ReadFailed(f"{name}: a JSON object is wanted, with a topic as each key.")
    return found


def _moved(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """`/there=/here,…`: a broker's directory on the left, where we see it on the right."""
    pairs = []
    for each in filter(None, options.get("tidemark.log.dirs", "").split(",")):
        there, equals, here = each.strip().partition("=")
        if not equals or not there or not here:
            raise ReadFailed(f"tidemark.log.dirs: {each!r} is not /path/of/the/broker=/path/here.")
        pairs.append((there.rstrip("/"), here.rstrip("/")))
    return tuple(pairs)
