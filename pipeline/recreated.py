"""Topics that were deleted and made anew under the same name: old offsets mean other records there.

Once the new log has grown past the old position nothing but the topic's id tells the two apart, so the ids of what was
read are kept beside the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import Partition

NOTE = "topics.json"


def recreated(*, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that are there under another id. One that is gone is the connector's to tell."""
    return sorted(name for name, was in before.items() if now.get(name, was) != was)


def sentence(topics: list[str], positions: Mapping[Partition, int]) -> str:
    """What such topics mean for a pipeline that has read up to these positions."""
    read = [
        f"{topic}-{partition} below {offset}"
        for (topic, partition), offset in sorted(positions.items())
        if topic in topics and offset > 0
    ]
    passed = f"; what is in the new log at the offsets that the old one had is not read: {', '.join(read)}"
    return f"Deleted and made anew since they were read: {', '.join(topics)}{passed if read else ''}"


class TopicIds:
    """The ids of the topics that this pipeline reads, as they were when it last ran."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._known: dict[str, str] = dict(checkpoint.read_note(NOTE))

    @property
    def known(self) -> Mapping[str, str]:
        return self._known

    def changed(self, now: Mapping[str, str]) -> list[str]:
        return recreated(before=self._known, now=now)

    def keep(self, now: Mapping[str, str]) -> None:
        if any(self._known.get(name) != each for name, each in now.items()):
            self._known = {**self._known, **now}
            self._checkpoint.write_note(NOTE, self._known)
