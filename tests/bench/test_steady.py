"""The steady producer of the benchmarks: what it counts, and that it does what clients do when answers are late."""

import os
import socket
import threading
import time

import pytest

from bench.calm import StolenTime
from bench.loaders.steady import IN_FLIGHT, SteadyProducer, quantile, summary
from bench.wire import read_frame

TOPIC = "t"
BODY = bytes(5) + bytes([2, 2]) + TOPIC.encode() + bytes([2]) + bytes(38)  # one topic, one partition, no error
ANSWER = len(BODY).to_bytes(4, "big") + BODY


@pytest.mark.parametrize(("share", "expected"), [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000), (0.0, 1)])
def test_a_quantile_is_the_value_that_such_a_share_does_not_exceed(share: float, expected: int) -> None:
    assert quantile([float(value) for value in range(1, 1001)], share) == expected


def test_the_summary_is_in_milliseconds() -> None:
    told = summary([0.002] * 999 + [0.5], [0.0])
    assert (told["records"], told["p50_ms"], told["p999_ms"], told["max_ms"]) == (1000, 2.0, 2.0, 500.0)


def test_time_is_calm_when_nothing_was_stolen_from_before_it_until_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = 100
    monkeypatch.setattr("bench.calm.stolen_ticks", lambda: ticks)
    stolen = StolenTime()
    start = time.perf_counter()
    for number in range(1, 21):
        ticks += number == 10
        stolen.mark(start + number * 0.11)
    calm = [number for number in range(1, 20) if stolen.is_calm(start + number * 0.11 - 0.02, start + number * 0.11)]
    assert calm == [1, 2, 3, 4, 5, 6, 7, 8, *range(11, 20)]
    assert not stolen.is_calm(start, start + 2.0)
    assert stolen.share == pytest.approx(0.01 / 2.2, rel=0.01)


class Broker:
    """Answers every produce request, but holds the answers back until told."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.sizes: list[int] = []
        self.go_on = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            try:
                while True:
                    self.sizes.append(len(read_frame(connection)))
                    if len(self.sizes) == IN_FLIGHT:
                        self.go_on.wait(10.0)
                        connection.sendall(ANSWER * IN_FLIGHT)
                    elif len(self.sizes) > IN_FLIGHT:
                        connection.sendall(ANSWER)
            except ConnectionError:
                return

    def close(self) -> None:
        self.go_on.set()
        self._listener.close()
        self._thread.join(10.0)


def test_records_that_come_while_answers_are_late_wait_and_leave_together() -> None:
    broker, (until, stop) = Broker(), os.pipe()
    producer = SteadyProducer(broker.address, topic=TOPIC, size=100, rate=1000.0)
    running = threading.Thread(target=producer.run, kwargs={"seconds": 30.0, "until": until})
    running.start()
    try:
        deadline = time.monotonic() + 10.0
        while len(producer.late) < 100 and time.monotonic() < deadline:
            time.sleep(0.005)
        handed_over, under_way = len(producer.late), len(broker.sizes)
    finally:
        broker.go_on.set()
        os.write(stop, b"\n")
        running.join(20.0)
        producer.close()
        broker.close()
        os.close(until)
        os.close(stop)
    assert under_way == IN_FLIGHT
    assert len(producer.took) == len(producer.late) >= handed_over
    assert len(broker.sizes) < handed_over / 2, "they left together"
    assert sum(broker.sizes) > 100 * handed_over
    assert max(producer.took) > 0.05
