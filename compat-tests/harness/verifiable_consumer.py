"""Apache Kafka's VerifiableConsumer as a member of a group, watched through the events that it prints."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter

from harness.java import tool_command

MAIN = "org.apache.kafka.tools.VerifiableConsumer"


class VerifiableConsumer:
    """It commits what it reads, and says so, and what it is assigned."""

    def __init__(self, bootstrap: str, group: str, *options: str) -> None:
        """The group reads the topic of its own name."""
        arguments = ["--bootstrap-server", bootstrap, "--topic", group, "--group-id", group]
        self.assignment: set[int] = set()
        self.read: Counter[tuple[int, int]] = Counter()
        self._process = subprocess.Popen(
            tool_command(MAIN, *arguments, "--reset-policy", "earliest", *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            partitions = event.get("partitions", [])
            if event["name"] == "partitions_assigned":
                self.assignment |= {each["partition"] for each in partitions}
            elif event["name"] == "partitions_revoked":
                self.assignment -= {each["partition"] for each in partitions}
            elif event["name"] == "records_consumed":
                for each in partitions:
                    self.read.update((each["partition"], o) for o in range(each["minOffset"], each["maxOffset"] + 1))

    def close(self) -> None:
        self._process.terminate()
        self._finish()

    def kill(self) -> None:
        self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(30)
        self._listener.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
