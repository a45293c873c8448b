"""What a node does again and again in the background, and which setting says how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from tidemark.broker.coordinators import Coordinators
from tidemark.broker.core.periodic import Job
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.replication.many_replicas import in_chunks
from tidemark.broker.replication.replicas import Replicas

TICK_MS: Final = 1000  # how punctual flush.ms and file.delete.delay.ms are


def background_jobs(settings: DynamicConfig, replicas: Replicas, coordinators: Coordinators) -> Iterator[Job]:
    housekeeping = replicas.housekeeping

    def setting(name: str) -> Callable[[], float]:
        return lambda: float(getattr(settings.current, name))

    def checkpoint_interval_ms() -> float:
        config = settings.current
        return min(config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms)

    async def tick() -> None:
        await in_chunks(replicas.table, housekeeping.flush_due)
        await asyncio.sleep(0)  # it looks at all logs
        housekeeping.remove_deleted()
        if replicas.table.peers is None:  # with peers, replication sees to it
            replicas.roles.retries.retry()

    async def apply_retention() -> None:
        await in_chunks(replicas.table, housekeeping.apply_retention)

    async def expire_producers() -> None:
        await in_chunks(replicas.table, housekeeping.expire_producers)

    async def checkpoint() -> None:
        await in_chunks(replicas.table, housekeeping.forget_replicated)
        housekeeping.checkpoint()

    async def check_directories() -> None:
        await replicas.failures.check()

    async def clean() -> None:
        await replicas.cleaner.clean_all_due(settings.current)

    async def scrub() -> None:
        await replicas.scrubber.scrub_all_due(lambda: settings.current)

    delay_ms = settings.static.log_initial_task_delay_ms
    yield Job(lambda: TICK_MS, tick)
    yield Job(lambda: TICK_MS, check_directories)
    yield Job(checkpoint_interval_ms, checkpoint, delay_ms)
    yield Job(setting("replica_high_watermark_checkpoint_interval_ms"), housekeeping.checkpoint_high_watermarks)
    yield Job(setting("log_retention_check_interval_ms"), apply_retention, delay_ms)
    yield Job(setting("log_cleaner_backoff_ms"), clean)
    yield Job(lambda: TICK_MS, scrub, delay_ms)
    yield Job(setting("producer_id_expiration_check_interval_ms"), expire_producers)
    yield Job(setting("offsets_retention_check_interval_ms"), coordinators.expire_offsets)
    yield Job(setting("transaction_abort_timed_out_transaction_cleanup_interval_ms"), coordinators.abort_timed_out)
    yield Job(setting("transaction_remove_expired_transaction_cleanup_interval_ms"), coordinators.forget_expired)
