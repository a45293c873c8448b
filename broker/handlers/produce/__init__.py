"""Produce (key 0): append one batch per partition, and answer when the acknowledgement asked for is due.

A produce has two phases. Phase one (`appending`) fixes the order: each batch is validated and appended before the next
request is looked at. A batch whose records must be read first, and are many, waits for that; whatever comes for its
partition queues behind it. Phase two (`acks`) waits until what was appended is committed; meanwhile other requests go
on, and answers leave in the order of the requests. One batch for one partition is what most requests hold: `fast_path`
answers it from its bytes, by the same decisions.

acks=0: no answer; an error closes the connection, which is how Kafka makes the client notice.
acks=1: the answer leaves after the append, or after the sync if the topic has flush.messages=1.
acks=-1: after the high watermark has passed the batch; refused beforehand if too few replicas are in sync
(NOT_ENOUGH_REPLICAS), and with NOT_ENOUGH_REPLICAS_AFTER_APPEND if that happens while it waits.

v0–2: the record formats of before 0.11. Advertised, as Kafka 4 does, because librdkafka takes their absence for a
      broker without compression; a request that uses one of them is refused by hanging up.
v3: record batches, transactional ids (KIP-98). v5: log_start_offset in the answer (KIP-107).
v7: zstd (KIP-110); before, a zstd batch is UNSUPPORTED_COMPRESSION_TYPE. v8: errors by record (KIP-467).
v9: flexible (KIP-482). v10: NOT_LEADER_OR_FOLLOWER names the new leader (KIP-951).
v11: TRANSACTION_ABORTABLE (KIP-890). v12: writing to a partition adds it to the transaction (KIP-890).
v13: topics by id (KIP-516).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.deferred import awaited, chained
from tidemark.broker.core.registry import Call, NoAnswer, handles
from tidemark.broker.core.sliced_work import Job, at_once, finished
from tidemark.broker.handlers.produce.acks import PendingAcks, ProduceAnswer, no_answer
from tidemark.broker.handlers.produce.appending import Appender, Appending, BackgroundAppends, PlainAppends
from tidemark.broker.handlers.produce.fast_path import produce_fast, topic_of
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from tidemark.broker.transactions.coordinator import TransactionCoordinator

PARTITIONS_AT_ONCE_MAX: Final = 500  # more are appended to in slices of time


@handles(ProduceRequest, ProduceResponse, quick=produce_fast, quick_topic=topic_of)
def produce(
    request: ProduceRequest, call: Call, *, replicas: ReplicaTable, transactions: TransactionCoordinator
) -> ProduceAnswer | Job[ProduceAnswer] | Awaitable[ProduceResponse | NoAnswer]:
    is_large = sum(len(topic.partition_data) or 1 for topic in request.topic_data) > PARTITIONS_AT_ONCE_MAX
    if request.transactional_id is not None:
        produce_transactional = _produce_transactional_in_slices if is_large else _produce_transactional
        return produce_transactional(request, call, replicas, transactions)
    appender: Appender = BackgroundAppends if call.in_background else PlainAppends
    if is_large:
        return _both_phases_in_slices(request, call, replicas, appender)
    return _both_phases(request, call, replicas, appender)


def _both_phases(request: ProduceRequest, call: Call, replicas: ReplicaTable, appender: Appender) -> ProduceAnswer:
    appending = Appending(request, call, replicas, appender)
    return chained(appending.run(), lambda response: _acknowledged(request, appending, response))


def _both_phases_in_slices(
    request: ProduceRequest, call: Call, replicas: ReplicaTable, appender: Appender
) -> Job[ProduceAnswer]:
    """Later requests of the connection wait until the last batch of this one is appended."""
    appending = Appending(request, call, replicas, appender)
    response = yield from appending.run_in_slices()
    return chained(response, lambda response: _acknowledged(request, appending, response))


def _acknowledged(request: ProduceRequest, appending: Appending, response: ProduceResponse) -> ProduceAnswer:
    if request.acks == 0:
        return no_answer(response)
    unacknowledged = appending.unacknowledged
    if not unacknowledged:
        return response
    return PendingAcks(response, unacknowledged, acks=request.acks, timeout_ms=request.timeout_ms).deferred


def _produce_transactional(
    request: ProduceRequest, call: Call, replicas: ReplicaTable, transactions: TransactionCoordinator
) -> ProduceAnswer:
    """First the coordinator must have stored every partition that the transaction is going to touch."""
    from tidemark.broker.transactions.transactional_appends import TransactionalAppends

    appends = TransactionalAppends(request, version=call.version, replicas=replicas, transactions=transactions)
    added = at_once(appends.add_partitions())
    return chained(added, lambda _added: _both_phases(request, call, replicas, appends))


async def _produce_transactional_in_slices(
    request: ProduceRequest, call: Call, replicas: ReplicaTable, transactions: TransactionCoordinator
) -> ProduceResponse | NoAnswer:
    from tidemark.broker.transactions.transactional_appends import TransactionalAppends

    appends = TransactionalAppends(request, version=call.version, replicas=replicas, transactions=transactions)
    await awaited(await finished(appends.add_partitions()))
    return await awaited(await finished(_both_phases_in_slices(request, call, replicas, appends)))
