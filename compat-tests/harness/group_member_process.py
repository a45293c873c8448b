"""A member of a group in a process of its own, so that it can be killed: confluent-kafka, run by this file as a script.

    python group_member_process.py '{"bootstrap.servers": …, "group.id": …, "topics": […]}'

It prints one line of JSON per event: its assignment when that changes, and the partitions and offsets that it has read
and committed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from typing import Any


class GroupMember:
    """The test's side: what the process said so far."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        options = {key.replace("_", "."): value for key, value in settings.items()}
        options |= {"bootstrap.servers": bootstrap, "group.id": group, "topics": topics}
        command = [sys.executable, __file__, json.dumps(options)]
        self.assignment: frozenset[tuple[str, int]] | None = None
        self.read: Counter[tuple[str, int, int]] = Counter()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if "assignment" in event:
                self.assignment = frozenset((topic, number) for topic, number in event["assignment"])
            for topic, number, offset in event.get("read", ()):
                self.read[topic, number, offset] += 1

    def close(self) -> None:
        """It leaves the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._finish()

    def kill(self) -> None:
        """kill -9: the group has to find out by itself."""
        self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(30)
        self._listener.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    from confluent_kafka import Consumer

    options = json.loads(sys.argv[1])
    topics = options.pop("topics")
    consumer = Consumer({"auto.offset.reset": "earliest", "enable.auto.commit": False, **options})
    consumer.subscribe(topics)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    known = None
    while not stop.is_set():
        messages = [message for message in consumer.consume(500, 0.1) if message.error() is None]
        assignment = sorted((each.topic, each.partition) for each in consumer.assignment())
        if assignment != known:
            known = assignment
            print(json.dumps({"assignment": assignment}), flush=True)
        if messages and _commit(consumer):
            read = [(message.topic(), message.partition(), message.offset()) for message in messages]
            print(json.dumps({"read": read}), flush=True)
    consumer.close()


def _commit(consumer: Any) -> bool:
    from confluent_kafka import KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException:  # it lost them meanwhile: another member reads and counts them
        return False
    return True


if __name__ == "__main__":
    main()
