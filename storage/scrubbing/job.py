"""What scrubbing is told, and what it tells: plain values, as they travel between processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.storage.checking import Finding, Known, SegmentFile, check_segments, check_side_files
from tidemark.storage.errors import StorageError
from tidemark.storage.files import Files


class ScrubEnded(StorageError):
    """What was under way was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubJob:
    directory: str
    segments: tuple[SegmentFile, ...]  # none: the files beside the segments
    known: Known
    bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    findings: tuple[Finding, ...]
    bytes_read: int


def scrub(job: ScrubJob, *, files: Files, paced: Callable[[int], None]) -> Scrubbed:
    """`paced` is told of every so many bytes that are read, and may wait, or raise to give up. Raises OSError, as where
    a segment has been deleted meanwhile."""
    findings: list[Finding] = []
    read = 0
    if not job.segments:
        findings.extend(check_side_files(files, job.directory, job.known))
    for step in check_segments(files, job.directory, job.segments, job.known):
        if isinstance(step, Finding):
            findings.append(step)
        else:
            read += step
            paced(step)
    return Scrubbed(findings=tuple(findings), bytes_read=read)
