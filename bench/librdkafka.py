"""The C client library that the confluent-kafka wheel carries, called without per-message Python.

confluent-kafka builds a dict or a Message object for every record, about a microsecond each: at 100 B a record the
loader would be what is measured. Here a whole array of messages is handed over in one call, and the queue's own
blocking (RD_KAFKA_MSG_F_BLOCK) replaces polling. No delivery reports: the caller checks the end offsets instead.
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka

_PRODUCER, _CONSUMER = 0, 1
_MSG_COPY, _MSG_BLOCK = 0x2, 0x4
_OFFSET_BEGINNING = -2
_PTR = ctypes.c_void_p
_INT = ctypes.c_int
_STR = ctypes.c_char_p


class _Message(ctypes.Structure):
    """rd_kafka_message_t, whose layout is part of librdkafka's stable ABI."""

    _fields_ = [
        ("err", _INT),
        ("rkt", _PTR),
        ("partition", ctypes.c_int32),
        ("payload", _PTR),
        ("len", ctypes.c_size_t),
        ("key", _PTR),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", _PTR),
    ]


# name: (result, arguments)
_FUNCTIONS: dict[str, tuple[type | None, list[type]]] = {
    "rd_kafka_conf_new": (_PTR, []),
    "rd_kafka_conf_set": (_INT, [_PTR, _STR, _STR, _STR, ctypes.c_size_t]),
    "rd_kafka_new": (_PTR, [_INT, _PTR, _STR, ctypes.c_size_t]),
    "rd_kafka_topic_new": (_PTR, [_PTR, _STR, _PTR]),
    "rd_kafka_produce_batch": (_INT, [_PTR, ctypes.c_int32, _INT, _PTR, _INT]),
    "rd_kafka_flush": (_INT, [_PTR, _INT]),
    "rd_kafka_query_watermark_offsets": (_INT, [_PTR, _STR, ctypes.c_int32, _PTR, _PTR, _INT]),
    "rd_kafka_queue_new": (_PTR, [_PTR]),
    "rd_kafka_consume_start_queue": (_INT, [_PTR, ctypes.c_int32, ctypes.c_int64, _PTR]),
    "rd_kafka_consume_stop": (_INT, [_PTR, ctypes.c_int32]),
    "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, [_PTR, _INT, _PTR, ctypes.c_size_t]),
    "rd_kafka_message_destroy": (None, [_PTR]),
    "rd_kafka_init_transactions": (_PTR, [_PTR, _INT]),
    "rd_kafka_begin_transaction": (_PTR, [_PTR]),
    "rd_kafka_commit_transaction": (_PTR, [_PTR, _INT]),
    "rd_kafka_abort_transaction": (_PTR, [_PTR, _INT]),
    "rd_kafka_error_string": (_STR, [_PTR]),
    "rd_kafka_last_error": (_INT, []),
    "rd_kafka_err2str": (_STR, [_INT]),
}


def _load() -> ctypes.CDLL:
    bundled = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(bundled.glob("librdkafka*.so*"))
    library = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_rd = _load()


class ClientError(RuntimeError):
    """librdkafka reported an error."""


def _check(code: int, what: str) -> None:
    if code:
        raise ClientError(f"{what}: {_rd.rd_kafka_err2str(code).decode()}")


def _check_error(error: int | None, what: str) -> None:
    if error is not None:
        raise ClientError(f"{what}: {_rd.rd_kafka_error_string(error).decode()}")


def _client(kind: int, config: Mapping[str, str | int]) -> int:
    error = ctypes.create_string_buffer(512)
    conf = _rd.rd_kafka_conf_new()
    for key, value in config.items():
        if _rd.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), error, len(error)):
            raise ClientError(f"{key}={value}: {error.value.decode()}")
    handle: int | None = _rd.rd_kafka_new(kind, conf, error, len(error))
    if handle is None:
        raise ClientError(error.value.decode())
    return handle


class _Topic:
    """One client with one topic. Never destroyed: a loader is a process that ends when its load does."""

    def __init__(self, kind: int, config: Mapping[str, str | int], topic: str) -> None:
        self._client = _client(kind, config)
        self._name = topic.encode()
        self._topic: int = _rd.rd_kafka_topic_new(self._client, self._name, None)

    def watermarks(self, partition: int, *, timeout_ms: int = 30_000) -> tuple[int, int]:
        """Asks the broker, so that connection and metadata are there when the measured part begins."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = _rd.rd_kafka_query_watermark_offsets(
            self._client, self._name, partition, ctypes.byref(low), ctypes.byref(high), timeout_ms
        )
        _check(code, f"watermarks of {self._name.decode()}-{partition}")
        return low.value, high.value


class BatchProducer(_Topic):
    """Sends `batch` equal messages per call; blocks while the client's queue is full."""

    def __init__(self, config: Mapping[str, str | int], *, topic: str, value: bytes, batch: int) -> None:
        super().__init__(_PRODUCER, config, topic)
        self._value = ctypes.create_string_buffer(value, len(value))
        self._messages = (_Message * batch)()
        self._batch = batch
        for message in self._messages:
            message.payload, message.len = ctypes.addressof(self._value), len(value)

    def send(self, partition: int, *, count: int | None = None) -> None:
        wanted = self._batch if count is None else count
        sent = _rd.rd_kafka_produce_batch(self._topic, partition, _MSG_COPY | _MSG_BLOCK, self._messages, wanted)
        if sent != wanted:
            code = next(message.err for message in self._messages if message.err)
            _check(code, "produce")

    def flush(self, *, timeout_ms: int = 120_000) -> None:
        _check(_rd.rd_kafka_flush(self._client, timeout_ms), "flush")


class TransactionalProducer(BatchProducer):
    """Needs a `transactional.id`. An error of a transaction is raised: a load that fails is not worth going on with."""

    def init(self, *, timeout_ms: int = 60_000) -> None:
        _check_error(_rd.rd_kafka_init_transactions(self._client, timeout_ms), "init_transactions")

    def begin(self) -> None:
        _check_error(_rd.rd_kafka_begin_transaction(self._client), "begin_transaction")

    def commit(self, *, timeout_ms: int = 60_000) -> None:
        """Sends what is left, and waits for the coordinator's word."""
        _check_error(_rd.rd_kafka_commit_transaction(self._client, timeout_ms), "commit_transaction")

    def abort(self, *, timeout_ms: int = 60_000) -> None:
        """What is not flushed before is never sent."""
        _check_error(_rd.rd_kafka_abort_transaction(self._client, timeout_ms), "abort_transaction")


class BatchConsumer(_Topic):
    """Reads partitions without a group, counting records; nothing of a record is copied into Python."""

    def __init__(self, config: Mapping[str, str | int], *, topic: str, batch: int = 10_000) -> None:
        super().__init__(_CONSUMER, config, topic)
        self._queue: int = _rd.rd_kafka_queue_new(self._client)
        self._pointers = (_PTR * batch)()
        self._batch = batch

    def start(self, partition: int, *, offset: int = _OFFSET_BEGINNING) -> None:
        if _rd.rd_kafka_consume_start_queue(self._topic, partition, offset, self._queue):
            _check(_rd.rd_kafka_last_error(), f"start of partition {partition}")

    def stop(self, partition: int) -> None:
        if _rd.rd_kafka_consume_stop(self._topic, partition):
            _check(_rd.rd_kafka_last_error(), f"stop of partition {partition}")

    def poll(self, *, limit: int, timeout_ms: int = 1_000) -> int:
        """Waits until `limit` records (a batch at most) are there, or the time is over; how many came.

        It does wait for the last of them: never ask for more than will come. A reported error is raised.
        """
        pointers, destroy = self._pointers, _rd.rd_kafka_message_destroy
        wanted = min(limit, self._batch)
        count: int = _rd.rd_kafka_consume_batch_queue(self._queue, timeout_ms, pointers, wanted)
        if count <= 0:
            return 0
        # Errors come alone or at the end of what was ready, so looking at the last is enough, and costs nothing.
        code = _Message.from_address(pointers[count - 1] or 0).err
        for pointer in pointers[:count]:
            destroy(pointer)
        _check(code, "consume")
        return count
