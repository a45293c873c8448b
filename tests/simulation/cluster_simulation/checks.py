"""What must hold at the end, when everything has been healed: the whole history, record by record."""

from __future__ import annotations

from collections import defaultdict

from cluster_simulation.history import Anomaly, History, Place


def check_history(
    history: History, final: dict[Place, dict[int, bytes]], committed: dict[Place, dict[int, bytes]]
) -> None:
    """`final`: everything that is in the logs; `committed`: what read_committed is shown."""
    where = _where(final)
    _check_deleted(history, final)
    _check_read(history, final)
    _check_acknowledged(history, where, final)
    _check_transactions(history, where, {value for records in committed.values() for value in records.values()})
    _check_order(history, final)
    _check_groups(history, committed)
    _check_copies(history, final, committed)


def _where(final: dict[Place, dict[int, bytes]]) -> dict[bytes, tuple[Place, int]]:
    where: dict[bytes, tuple[Place, int]] = {}
    for place, records in final.items():
        for offset, value in records.items():
            if value in where:
                raise Anomaly(f"{value[:40]!r} is there twice: {where[value]} and {(place, offset)}")
            where[value] = (place, offset)
    return where


def _check_deleted(history: History, final: dict[Place, dict[int, bytes]]) -> None:
    for place, before in history.deleted.items():
        if (first := min(final.get(place, {}), default=before)) < before:
            raise Anomaly(f"{place} begins at {first}, and everything before {before} was deleted")


def _check_read(history: History, final: dict[Place, dict[int, bytes]]) -> None:
    for place, seen in history.read.items():
        for offset, value in seen.items():
            if place in final and offset >= history.may_be_deleted[place] and final[place].get(offset) != value:
                now = final[place].get(offset)
                raise Anomaly(f"{place} offset {offset} was read as {value[:40]!r}, and is {now!r} now")


def _check_acknowledged(
    history: History, where: dict[bytes, tuple[Place, int]], final: dict[Place, dict[int, bytes]]
) -> None:
    for value, sent in history.sent.items():
        if sent.offset is None or sent.place not in final or sent.offset < history.may_be_deleted[sent.place]:
            continue
        if value not in where:
            raise Anomaly(f"{value[:40]!r}, acknowledged at {sent.place} offset {sent.offset}, is lost")
        if where[value] != (sent.place, sent.offset):
            raise Anomaly(f"{value[:40]!r}, acknowledged at {(sent.place, sent.offset)}, is at {where[value]}")


def _check_transactions(history: History, where: dict[bytes, tuple[Place, int]], shown: set[bytes]) -> None:
    by_transaction: dict[int, set[bool]] = defaultdict(set)
    for value, sent in history.sent.items():
        if sent.offset is not None and sent.offset < history.may_be_deleted[sent.place]:
            continue
        if sent.transaction is not None:
            if sent.offset is not None:
                by_transaction[sent.transaction].add(value in shown)
        elif value in where and value not in shown:
            raise Anomaly(f"{value[:40]!r} is hidden from read_committed")
    for number, seen in by_transaction.items():
        outcome = history.decided.get(number)
        if len(seen) > 1:
            raise Anomaly(f"transaction {number} ({outcome}) is shown in part")
        if (outcome == "committed" and False in seen) or (outcome in ("aborted", None) and True in seen):
            raise Anomaly(f"transaction {number} is {outcome}, and {'' if True in seen else 'not '}shown")


def _check_order(history: History, final: dict[Place, dict[int, bytes]]) -> None:
    for place, records in final.items():
        last: dict[str, int] = {}
        for offset in sorted(records):
            sent = history.sent[records[offset]]
            if sent.number <= last.get(sent.producer, -1):
                raise Anomaly(f"{place} offset {offset}: {sent.producer}'s record {sent.number} follows a later one")
            last[sent.producer] = sent.number


def _check_groups(history: History, committed: dict[Place, dict[int, bytes]]) -> None:
    """A group has read everything before the offsets that it committed."""
    for (group, place), ranges in history.read_by.items():
        end = history.committed.get((group, place), 0)
        read = {offset for begin, after in ranges for offset in range(begin, after)}
        for offset in committed.get(place, {}):
            if history.may_be_deleted[place] <= offset < end and offset not in read:
                raise Anomaly(f"{group} committed offset {end} of {place}, and nobody in it has read offset {offset}")


def _check_copies(
    history: History, final: dict[Place, dict[int, bytes]], committed: dict[Place, dict[int, bytes]]
) -> None:
    """Exactly once: of every record before the offset that the group committed there is one copy."""
    copied: dict[tuple[Place, int], bytes] = {}
    groups: set[str] = set()
    for records in committed.values():
        for value in records.values():
            sent = history.sent[value]
            if sent.source is None:
                continue
            groups.add(sent.producer.rsplit("-", 1)[0])
            if sent.source in copied:
                raise Anomaly(f"{sent.source} was copied twice: {copied[sent.source]!r} and {value!r}")
            copied[sent.source] = value
    for group, place in history.committed:
        if group in groups and place in committed:
            end = history.committed[group, place]
            for offset in committed[place]:
                is_due = history.may_be_deleted[place] <= offset < end
                if is_due and (place, offset) not in copied:
                    raise Anomaly(f"{place} offset {offset} was not copied, and {group} committed offset {end}")
