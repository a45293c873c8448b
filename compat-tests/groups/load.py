"""A producer that keeps just so far ahead of a group that the group always has something to read."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaError, Message
from groups.members import Ledger
from harness.confluent_client import producer, send_patiently

# Small, or else a fast member reads millions while a slow one is still starting.
LEAD_MIN = 3600
CHUNK = 1200  # a multiple of the partitions


class Load:
    """Sends at least `count` small records over all partitions, and goes on until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, count: int, ledger: Ledger) -> None:
        self.sent = 0
        self.errors: list[KafkaError] = []
        self.unsent = -1
        self._topic, self._partitions, self._count, self._ledger = topic, partitions, count, ledger
        self._lead = max(LEAD_MIN, count // 100)
        self._is_stopping = False
        self._producer = producer(
            bootstrap, enable_idempotence=True, linger_ms=5, reconnect_backoff_ms=20, reconnect_backoff_max_ms=200,
            retry_backoff_ms=50, message_timeout_ms=120_000,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """Returns when everything is acknowledged."""
        with self._ledger.changed:
            self._is_stopping = True
            self._ledger.changed.notify_all()
        self._thread.join(150)
        assert (self.errors, self.unsent) == ([], 0)

    def abort(self) -> None:
        """The end of a test, whatever became of it."""
        if self._thread.is_alive():
            self._count = 0
            self._producer.purge()
            with self._ledger.changed:
                self._is_stopping = True
                self._ledger.changed.notify_all()
            self._thread.join(150)

    def _run(self) -> None:
        while self._may_go_on():
            for _ in range(CHUNK):
                number = self.sent
                value = b"%d" % number
                send_patiently(
                    self._producer, self._topic, value, partition=number % self._partitions, on_delivery=self._report
                )
                self.sent += 1
            self._producer.poll(0)
        self.unsent = self._producer.flush(120)

    def _may_go_on(self) -> bool:
        ledger = self._ledger
        with ledger.changed:
            ledger.changed.wait_for(lambda: self._is_done() or self.sent - ledger.distinct < self._lead)
            return not self._is_done()

    def _is_done(self) -> bool:
        return self._is_stopping and self.sent >= self._count

    def _report(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(error)
