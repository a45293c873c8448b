"""What requests and answers look like, as JSON Schema. Loaded when somebody asks for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from tidemark.broker.http.consumer_instance import RESETS
from tidemark.broker.http.consumers import IDLE_MS_LEAST, IDLE_MS_MOST, PATTERN_CHARS_MAX, TOPICS_MAX
from tidemark.broker.http.consuming import BYTES_DEFAULT, BYTES_MAX, WAIT_MS_MAX
from tidemark.broker.http.decoding import FORMATS_READ, ISOLATION
from tidemark.broker.http.groups import OFFSETS_MAX
from tidemark.broker.http.idempotence import KEY_CHARS_MAX
from tidemark.broker.http.producing import RECORDS_MAX, TIMEOUT_MS_MAX
from tidemark.broker.http.record_json import FORMATS, TIMESTAMP_MAX

Schema = dict[str, Any]

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
TOPIC_PATTERN: Final = "^[a-zA-Z0-9._-]{1,249}$"


def _object(required: str = "", /, *, closed: bool = True, **properties: Schema) -> Schema:
    """`required`: names. A closed one has no other properties: a misspelt name is an error."""
    made: Schema = {"type": "object", "properties": properties}
    if required:
        made["required"] = required.split()
    if closed:
        made["additionalProperties"] = False
    return made


def _told(**properties: Schema) -> Schema:
    """Of an answer: everything is there, and more may come."""
    return _object(" ".join(properties), closed=False, **properties)


def _list(items: Schema, *, least: int = 0, most: int | None = None) -> Schema:
    return {"type": "array", "items": items, "minItems": least} | ({} if most is None else {"maxItems": most})


def _integer(least: int, most: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def _word(words: Any, **more: Any) -> Schema:
    return {"type": "string", "enum": list(words), **more}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT: Final[Schema] = {"type": "string"}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
WHOLE: Final[Schema] = {"type": "integer"}
WHOLE_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
FLAG: Final[Schema] = {"type": "boolean"}
TOPIC: Final[Schema] = {"type": "string", "pattern": TOPIC_PATTERN}
PARTITION: Final = _integer(0, INT_MAX)
OFFSET: Final = _integer(0, LONG_MAX)
ANYTHING: Final[Schema] = {}
CONFIGS: Final[Schema] = {"type": "object", "additionalProperties": TEXT_OR_NULL}

_AT: Final[dict[str, Any]] = {
    "offset": OFFSET,
    "timestamp": _integer(0, LONG_MAX, description="The first offset of this time on, in ms; else the end."),
    "to": _word(("earliest", "latest")),
}
_PLACE: Final[Schema] = _object("topic partition", topic=TOPIC, partition=PARTITION, **_AT) | {
    "oneOf": [{"required": [name]} for name in _AT]
}

COMPONENTS: Final[dict[str, Schema]] = {
    "Problem": _object(
        "status error title detail",
        closed=False,
        type=TEXT,
        title=TEXT,
        status=WHOLE,
        error={"type": "string", "description": "Kafka's name of the error."},
        detail=TEXT,
    ),
    "Header": _object("name", name=TEXT, value=ANYTHING, value_format=_word(FORMATS, default="string")),
    "NewRecord": _object(
        key={"description": "By key_format; null or absent: no key."},
        value={"description": "By value_format; null or absent: a tombstone."},
        key_format=_word(FORMATS, default="string"),
        value_format=_word(FORMATS, default="json"),
        headers={"anyOf": [CONFIGS, _list(ref("Header"))]},
        timestamp=_integer(0, TIMESTAMP_MAX) | {"type": ["integer", "null"]},
        partition=PARTITION | {"type": ["integer", "null"]},
    ),
    "NewRecords": {
        "anyOf": [
            ref("NewRecord"),
            _list(ref("NewRecord"), least=1, most=RECORDS_MAX),
            _object(
                "records",
                records=_list(ref("NewRecord"), least=1, most=RECORDS_MAX),
                acks={"enum": ["all", "1", "0", 1, 0, -1], "default": "all"},
                timeout_ms=_integer(1, TIMEOUT_MS_MAX, default=TIMEOUT_MS_MAX),
            ),
        ]
    },
    "Offsets": _told(
        offsets=_list(_object("partition", closed=False, partition=WHOLE, offset=WHOLE, error=TEXT, detail=TEXT))
    ),
    "Record": _object(
        "partition offset timestamp key value",
        closed=False,
        topic=TEXT,
        partition=WHOLE,
        offset=WHOLE,
        timestamp=WHOLE,
        key=ANYTHING,
        value=ANYTHING,
        key_format=_word(FORMATS),
        value_format=_word(FORMATS),
        headers=_list(_object("name value", closed=False, name=TEXT, value=ANYTHING, value_format=_word(FORMATS))),
    ),
    "Records": _told(records=_list(ref("Record")), next_offset=WHOLE, high_watermark=WHOLE, start_offset=WHOLE),
    "PolledRecords": _told(records=_list(ref("Record"))),
    "Topics": _told(topics=_list(_told(name=TEXT, partitions=WHOLE, internal=FLAG))),
    "NewTopic": _object(
        "name",
        name=TOPIC,
        partitions=_integer(1, INT_MAX),
        replication_factor=_integer(1, 32767),
        configs=CONFIGS,
    ),
    "CreatedTopic": _told(name=TEXT, partitions=WHOLE, replication_factor=WHOLE),
    "Topic": _told(
        name=TEXT,
        internal=FLAG,
        partitions=_list(_told(partition=WHOLE, leader=WHOLE, replicas=_list(WHOLE), isr=_list(WHOLE))),
    ),
    "PartitionCount": _object("partitions", partitions=_integer(1, INT_MAX)),
    "Configs": _told(configs=CONFIGS),
    "NewConfigs": _object("configs", configs=CONFIGS),
    "Cluster": _told(
        cluster_id=TEXT,
        controller_id=WHOLE,
        brokers=_list(_told(id=WHOLE, host=TEXT, port=WHOLE, rack=TEXT_OR_NULL)),
    ),
    "Groups": _object(
        "groups",
        closed=False,
        groups=_list(_told(group=TEXT, state=TEXT, type=TEXT, coordinator=WHOLE)),
        errors=_list(_told(broker=WHOLE, error=TEXT, detail=TEXT))
        | {"description": "Brokers that did not answer, whose groups are missing; with status 207 only."},
    ),
    "Group": _told(
        group=TEXT,
        state=TEXT,
        type=TEXT,
        coordinator=WHOLE,
        members=_list(
            _object(
                "member_id client_id client_host",
                closed=False,
                member_id=TEXT,
                client_id=TEXT,
                client_host=TEXT,
                assignment=_list(_told(topic=TEXT, partitions=_list(WHOLE))),
            )
        ),
    ),
    "GroupOffsets": _told(
        group=TEXT,
        lag=WHOLE,
        offsets=_list(_told(topic=TEXT, partition=WHOLE, offset=WHOLE, end_offset=WHOLE_OR_NULL, lag=WHOLE_OR_NULL)),
    ),
    "NewOffsets": _object("offsets", offsets=_list(_PLACE, least=1, most=OFFSETS_MAX)),
    "NewConsumer": _object(
        auto_offset_reset=_word(RESETS, default="earliest"),
        auto_commit={"type": "boolean", "default": False},
        isolation=_word(ISOLATION, default=ISOLATION[0]),
        key_format=_word(FORMATS_READ, default="string"),
        value_format=_word(FORMATS_READ, default="auto"),
        idle_ms=_integer(IDLE_MS_LEAST, IDLE_MS_MOST, description="Not used for so long, it leaves the group."),
    ),
    "CreatedConsumer": _told(id=TEXT, url=TEXT),
    "Consumer": _told(
        id=TEXT,
        group=TEXT,
        topics=_list(TEXT),
        topic_pattern=TEXT_OR_NULL,
        assignment=_list(_told(topic=TEXT, partition=WHOLE, position=WHOLE_OR_NULL)),
    ),
    "Subscription": {
        "oneOf": [
            _object("topics", topics=_list(TOPIC, least=1, most=TOPICS_MAX)),
            _object(
                "topic_pattern",
                topic_pattern={
                    "type": "string",
                    "minLength": 1,
                    "maxLength": PATTERN_CHARS_MAX,
                    "description": "A regular expression (RE2) of whole names.",
                },
            ),
        ]
    },
    "CommitOffsets": _object(offsets=_list(_PLACE, least=1, most=OFFSETS_MAX)),
    "CommittedOffsets": _told(offsets=_list(_told(topic=TEXT, partition=WHOLE, offset=WHOLE))),
    "NewPositions": _object("positions", positions=_list(_PLACE, least=1, most=OFFSETS_MAX)),
    "Health": _object("status node_id", closed=False, status=TEXT, node_id=WHOLE),
}

# By their names in paths, queries and headers.
PATH_VALUES: Final[dict[str, Schema]] = {
    "topic": TOPIC,
    "partition": _integer(0, 999_999_999),
    "broker": _integer(0, 999_999_999),
    "group": {"type": "string", "minLength": 1},
    "consumer": {"type": "string", "minLength": 1},
}
HEADER_VALUES: Final[dict[str, Schema]] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]+=[0-9]+(,[0-9]+=[0-9]+)*$"},
}
QUERY_VALUES: Final[dict[str, Schema]] = {
    "offset": {"anyOf": [OFFSET, _word(("earliest", "latest"))], "default": "earliest"},
    "timestamp": _integer(0, LONG_MAX, description="Begin at this time, in ms, instead of an offset."),
    "key": {"type": "string", "description": "Only records with this key."},
    "header": {"type": "string", "pattern": "^[^:]*:", "description": "Only records with it, as name:value."},
    "key_format": _word(FORMATS_READ, default="string"),
    "value_format": _word(FORMATS_READ, default="auto"),
    "isolation": _word(ISOLATION, default=ISOLATION[0]),
    "max_bytes": _integer(1, BYTES_MAX, default=BYTES_DEFAULT),
    "wait_ms": _integer(0, WAIT_MS_MAX, default=0, description="How long to wait for the first record."),
    "partition": PARTITION,
    "redirect": _word(("true", "false"), default="false", description="Be sent to the leader, if it is elsewhere."),
}
