"""Offsets committed in transactions that have not ended yet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue

Key = tuple[str, str, int]  # group, topic, partition


class _Pending:
    __slots__ = ("order", "value")

    def __init__(self, order: int, value: OffsetCommitValue | None) -> None:
        self.order = order
        self.value = value  # None once a newer offset was written


class PendingOffsets:
    """The record written last wins, not the transaction that ends last."""

    def __init__(self) -> None:
        self._order = count()
        self._producers: dict[int, dict[Key, _Pending]] = {}
        self._holders: dict[Key, set[int]] = {}  # which producers have something pending
        self._groups: dict[str, set[Key]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        where = (key.group, key.topic, key.partition)
        self._producers.setdefault(producer_id, {})[where] = _Pending(next(self._order), value)
        self._holders.setdefault(where, set()).add(producer_id)
        self._groups.setdefault(key.group, set()).add(where)

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """The offsets that take effect with the end of this producer's transaction."""
        ended = self._producers.pop(producer_id, None)
        if ended is None:
            return []
        taking_effect = []
        for where, pending in ended.items():
            self._release(where, producer_id)
            if commit and pending.value is not None:
                group, topic, partition = where
                taking_effect.append((OffsetCommitKey(group=group, topic=topic, partition=partition), pending.value))
                self._outdate(where, before=pending.order)
        return taking_effect

    def supersede(self, key: OffsetCommitKey, *, forget: bool) -> None:
        """A newer offset was written outside transactions; a deletion (`forget`) also drops the pending one."""
        where = (key.group, key.topic, key.partition)
        self._outdate(where, before=None)
        if forget:
            for producer_id in list(self._holders.get(where, ())):
                self._release(where, producer_id)
                pending = self._producers[producer_id]
                del pending[where]
                if not pending:
                    del self._producers[producer_id]

    def _outdate(self, where: Key, *, before: int | None) -> None:
        for producer_id in self._holders.get(where, ()):
            pending = self._producers[producer_id][where]
            if before is None or pending.order < before:
                pending.value = None

    def _release(self, where: Key, producer_id: int) -> None:
        holders = self._holders[where]
        holders.discard(producer_id)
        if holders:
            return
        del self._holders[where]
        keys = self._groups[where[0]]
        keys.discard(where)
        if not keys:
            del self._groups[where[0]]

    # -- asking ------------------------------------------------------------

    def has(self, group: str, topic: str, partition: int) -> bool:
        return (group, topic, partition) in self._holders

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def of_group(self, group: str) -> Iterator[Key]:
        return iter(sorted(self._groups.get(group, ())))
