"""The test's side of a group: members in processes of their own, and what all of them together read and committed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from harness.java import tool_command

SCRIPT = Path(__file__).with_name("member_process.py")
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
LEAVE_SECONDS_MAX = 60

Run = tuple[int, int, int]  # partition, first and last offset
Record = tuple[int, int]


class Deed(NamedTuple):
    """A read (`first` to before `end`) or a commit (up to before `end`), by the clock that all processes share."""

    at_ms: int
    is_commit: bool
    partition: int
    first: int
    end: int


def records(runs: Iterable[Run]) -> Iterable[Record]:
    return ((partition, offset) for partition, first, last in runs for offset in range(first, last + 1))


class Ledger:
    """How many different records were seen so far; whoever waits for more is woken."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.distinct = 0
        self._seen: defaultdict[int, bytearray] = defaultdict(bytearray)

    def enter(self, runs: list[Run]) -> None:
        with self.changed:
            for partition, first, last in runs:
                marks, end = self._seen[partition], last + 1
                marks.extend(bytes(max(0, end - len(marks))))
                self.distinct += marks.count(0, first, end)
                marks[first:end] = b"\1" * (end - first)
            self.changed.notify_all()

    def await_distinct(self, count: int, *, seconds_max: float, describe: Callable[[], str]) -> None:
        with self.changed:
            reached = self.changed.wait_for(lambda: self.distinct >= count, seconds_max)
        assert reached, f"{self.distinct} of {count} records seen within {seconds_max} s: {describe()}"


class Member:
    """What one member said: which records it saw, for which of them it knows that they are committed."""

    def __init__(self, ledger: Ledger, name: str, command: list[str], errors: TextIO) -> None:
        self.name = name
        self.history: list[Deed] = []
        self.confirmed: list[Run] = []
        self.at_risk: list[Run] = []
        self.reasons: list[str] = []
        self.was_killed = False
        self.has_left = False
        self.seen = 0
        self._pending: list[Run] = []
        self._ledger = ledger
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """It commits and leaves the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._finish()
        assert self.has_left, f"{self.name} ended by itself with {self._process.returncode}"

    def kill(self) -> None:
        """kill -9: the group has to find out by itself."""
        self.was_killed = True
        self._process.kill()
        self._finish()

    def discard(self) -> None:
        """The end of a test, whatever became of it."""
        if self.is_running:
            self.kill()

    def __str__(self) -> str:
        state = "killed" if self.was_killed else "left" if self.has_left else "running" if self.is_running else "gone"
        return f"{self.name} ({state}): {self.seen} seen, at risk {self.at_risk + self._pending}, {self.reasons}"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # the last one of a killed process may be half a line
                self.hear(json.loads(line))
        self.at_risk += self._pending
        self._pending = []

    def hear(self, event: dict[str, Any]) -> None:
        if "read" in event:
            self._read(event["at"], [(partition, first, last) for partition, first, last in event["read"]])
        elif "committed" in event:
            self._committed(event["at"], dict(event["committed"]))
        elif "given_up" in event:
            self._given_up(set(event["given_up"]), event["why"])
        self.has_left |= "left" in event

    def _read(self, at_ms: int, runs: list[Run]) -> None:
        self.history += [Deed(at_ms, False, partition, first, last + 1) for partition, first, last in runs]
        self.seen += sum(last - first + 1 for _, first, last in runs)
        self._pending += runs
        self._ledger.enter(runs)

    def _committed(self, at_ms: int, offsets: dict[int, int]) -> None:
        self.history += [Deed(at_ms, True, partition, 0, end) for partition, end in offsets.items()]
        self.confirmed += [run for run in self._pending if run[2] < offsets.get(run[0], 0)]
        self._pending = [run for run in self._pending if run[2] >= offsets.get(run[0], 0)]

    def _given_up(self, partitions: set[int], why: str) -> None:
        self.reasons.append(why)
        self.at_risk += [run for run in self._pending if run[0] in partitions]
        self._pending = [run for run in self._pending if run[0] not in partitions]

    def _finish(self) -> None:
        try:
            self._process.wait(LEAVE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class JavaMember(Member):
    """Apache Kafka's VerifiableConsumer: it commits after every poll, and leaves on SIGTERM."""

    def leave(self) -> None:
        self._process.terminate()
        self._finish()
        assert self.has_left, f"{self.name} ended by itself with {self._process.returncode}"

    def hear(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "records_consumed":
                each = [(part["partition"], part["minOffset"], part["maxOffset"]) for part in event["partitions"]]
                assert sum(last - first + 1 for _, first, last in each) == event["count"], "an offset was left out"
                self._read(event["timestamp"], each)
            case "offsets_committed" if event["success"]:
                self._committed(event["timestamp"], {each["partition"]: each["offset"] for each in event["offsets"]})
            case "offsets_committed":
                self._given_up({each["partition"] for each in event["offsets"]}, event["error"])
            case "shutdown_complete":
                self.has_left = True


def read_again_after_commit(members: Iterable[Member]) -> list[tuple[str, Deed]]:
    """Reads of what a member knew to be committed: nothing explains those."""
    committed: dict[int, int] = {}
    found = []
    deeds = sorted(((deed, member.name) for member in members for deed in member.history), key=lambda each: each[0][:2])
    for deed, name in deeds:
        known = committed.get(deed.partition, 0)
        if deed.is_commit:
            committed[deed.partition] = max(known, deed.end)
        elif deed.first < known:
            found.append((name, deed))
    return found


def seen_by(members: Iterable[Member]) -> Counter[Record]:
    return Counter(record for member in members for record in records(member.confirmed + member.at_risk))


class Group:
    """Starts the members of one group and remembers them all."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self.ledger = Ledger()
        self.members: list[Member] = []
        self._bootstrap, self._topic, self._directory = bootstrap, topic, directory

    def join(self, client: str, *, session_ms: int, settings: dict[str, Any] | None = None) -> Member:
        name = f"{len(self.members)}-{client}"
        with (self._directory / f"{name}.log").open("w") as errors:
            if client == "java":
                member: Member = JavaMember(self.ledger, name, self._java(session_ms), errors)
            else:
                options = {
                    "client": client, "bootstrap": self._bootstrap, "group": self._topic, "topic": self._topic,
                    "session_ms": session_ms, "settings": settings or {},
                }  # fmt: skip
                member = Member(self.ledger, name, [sys.executable, str(SCRIPT), json.dumps(options)], errors)
        self.members.append(member)
        return member

    def _java(self, session_ms: int) -> list[str]:
        settings = self._directory / "java.properties"
        settings.write_text("heartbeat.interval.ms=300\nreconnect.backoff.max.ms=200\n")
        return tool_command(
            VERIFIABLE_CONSUMER, "--bootstrap-server", self._bootstrap, "--topic", self._topic,
            "--group-id", self._topic, "--group-protocol", "classic", "--session-timeout", str(session_ms),
            "--reset-policy", "earliest", "--assignment-strategy", RANGE,
            "--command-config", str(settings),
        )  # fmt: skip

    def describe(self) -> str:
        return "\n".join(map(str, self.members))
