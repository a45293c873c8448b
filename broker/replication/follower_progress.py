"""What the fetches of followers tell their leader, and what it does about it."""

from __future__ import annotations

import logging

from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_logs import check_records
from tidemark.broker.replication.role_assignment import RoleAssignment
from tidemark.protocol.records import InvalidBatch
from tidemark.storage import OffsetOutOfRange, StorageError

log = logging.getLogger(__name__)


class FollowerProgress:
    def __init__(self, roles: RoleAssignment) -> None:
        self._roles = roles

    def fetched(self, partition: Partition, node_id: int, now: float) -> None:
        partition.update_high_watermark(now=now)
        partition.update_low_watermark()
        if node_id not in partition.leadership.isr:
            self._roles.replicator.consider_expansion(partition, node_id)

    def stopped_fetching(self, partition: Partition) -> None:
        self._roles.replicator.check_lag_soon(partition)

    def stuck_at(self, partition: Partition, offset: int) -> None:
        """A follower cannot get past a place: perhaps what this node has there is damaged, and another has it whole."""
        try:
            check_records(partition.log, offset)
        except OffsetOutOfRange:
            return  # deleted meanwhile: nothing is wrong with what this node has
        except (StorageError, InvalidBatch) as error:
            log.error("%s-%d: what is at offset %d is damaged: %s", partition.topic, partition.index, offset, error)
            if len(partition.leadership.isr) > 1:
                self._roles.rebuild(partition, f"damaged at offset {offset}: {error}")
