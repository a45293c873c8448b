"""Damage to what lies on a disk."""

from __future__ import annotations

import contextlib
import os
from random import Random

from tidemark.protocol.records import InvalidBatch, iter_batches
from tidemark.simulation.disk import Disk, File


def flip_a_bit(disk: Disk, random: Random, *, of: str = "") -> str:
    """Of some log, or of that of a partition, after its recovery point. Says where; nothing, if there is no such
    place."""
    files = dict(disk.files())
    points = _recovery_points(files)
    found = []
    for path, file in files.items():
        directory, name = os.path.split(path)
        is_wanted = not of or os.path.basename(directory) == of
        if is_wanted and name.endswith(".log") and file.data and not directory.endswith("-delete"):
            start = _position_of(file, points.get(directory, 0))
            if start < len(file.data):
                found.append((path, start))
    if not found:
        return "nothing"
    path, start = random.choice(found)
    position = random.randrange(start, len(files[path].data))
    files[path].data[position] ^= 1 << random.randrange(8)
    return f"{path}, byte {position}"


def _recovery_points(files: dict[str, File]) -> dict[str, int]:
    """By the path of a partition's directory."""
    points = {}
    for path, file in files.items():
        above, name = os.path.split(path)
        if name == "recovery-point-offset-checkpoint":
            for line in file.data.decode().splitlines()[2:]:
                topic, partition, offset = line.rsplit(" ", 2)
                points[f"{above}/{topic}-{partition}"] = int(offset)
    return points


def _position_of(file: File, offset: int) -> int:
    position = 0
    with contextlib.suppress(InvalidBatch):  # a torn tail
        for header, batch in iter_batches(bytes(file.data), partial_tail=True):
            if header.next_offset > offset:
                break
            position += len(batch)
    return position
