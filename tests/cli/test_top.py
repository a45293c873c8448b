"""`tidemark top`, against a broker in this process."""

from __future__ import annotations

import json
import socket
import sys
from threading import Timer
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import tidemark
from tidemark.cli import top
from tidemark.cli.main import main
from tidemark.cli.metrics_text import Scrape, quantiles, rates
from tidemark.cli.top_figures import figures
from tidemark.cli.top_screen import screen
from tidemark.failure import CommandFailed, ExitCode


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_the_screen_shows_traffic_latency_lag_clients_and_faults(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tidemark.embedded(**{"http.listeners": f"HTTP://127.0.0.1:{port}"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "top-app", "log_level": 0})
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "late", "log_level": 0})

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("orders", b"x" * 100)
            assert producer.flush(30) == 0

        def post() -> None:
            produce(50)
            data = json.dumps({"value": 1}).encode()
            asked = Request(f"{url}/topics/orders/records", data, {"Content-Type": "application/json"})
            with build_opener(ProxyHandler({})).open(asked, timeout=30) as answer:
                assert answer.status == 200

        produce(5)
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        assert main(["top", url, "--once", "--interval", "0.1"]) == ExitCode.OK  # from now on clients are counted
        capsys.readouterr()
        figures = taken(capsys, url, post)
        [node] = figures["nodes"]
        assert node["is_controller"]
        assert node["records_in_per_second"] > 0
        asked = {each["api"]: each for each in figures["requests"]}
        assert {"Produce", "POST /topics/{topic}/records"} <= set(asked)
        assert asked["POST /topics/{topic}/records"]["p99_seconds"] > 0
        assert figures["topics"][0]["topic"] == "orders"
        assert [(each["group"], each["lag"]) for each in figures["groups"]] == [("late", 54)]
        assert "top-app" in [each["client_id"] for each in figures["clients"]]
        shown = "\n".join(screen(figures, rows=5))
        for expected in ("orders", "late", "top-app", "Produce", "no faults"):
            assert expected in shown
        consumer.close()
    assert main(["top", url, "--once"]) == ExitCode.NOT_REACHABLE
    assert main(["top", "ftp://x", "--once"]) == ExitCode.USAGE


def taken(capsys: pytest.CaptureFixture[str], url: str, between: Any) -> Any:
    timer = Timer(0.2, between)
    timer.start()
    assert main(["top", url, "--json", "--interval", "0.8"]) == ExitCode.OK
    timer.join()
    return json.loads(capsys.readouterr().out)


def test_rates_and_quantiles_are_those_between_two_looks() -> None:
    before = Scrape('c_total{a="x\\"\\n{}"} 10\nh_bucket{r="P",le="0.1"} 0\nh_bucket{r="P",le="+Inf"} 0\n', at=0.0)
    after = Scrape('c_total{a="x\\"\\n{}"} 30\nh_bucket{r="P",le="0.1"} 90\nh_bucket{r="P",le="+Inf"} 100\n', at=2.0)
    assert rates(before, after, "c_total", "a") == {('x"\n{}',): 10.0}
    assert rates(after, Scrape("c_total 4", at=4.0), "c_total") == {(): 2.0}
    [(middle, high)] = quantiles(before, after, "h", ("r",), (0.5, 0.99)).values()
    assert middle == pytest.approx(0.0556, abs=1e-3)
    assert high == 0.1


def test_names_of_clients_do_not_move_the_cursor() -> None:
    client = {"user": "\x1b[2J", "client_id": "a\nb", "loop_share": 0.0, "throttled_share": 0.0}
    client |= {"bytes_in_per_second": 1.0, "bytes_out_per_second": 0.0}
    figures: dict[str, Any] = {"nodes": [], "silent": [], "requests": [], "topics": [], "groups": [], "faults": {}}
    assert all(line.isprintable() for line in screen(figures | {"clients": [client]}, rows=5))


def test_http_requests_are_told_by_route_and_those_of_who_watches_are_not() -> None:
    def scrape(count: int, *, at: float) -> Scrape:
        lines = [
            f'tidemark_http_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}'
            for method, path, status in (
                ("POST", "/topics/{topic}/records", 200),
                ("POST", "/topics/{topic}/records", 503),
                ("GET", "/readyz", 503),
                ("GET", "/metrics", 200),
                ("", "", 404),
            )
        ]
        return Scrape("\n".join(lines), at=at)

    shown = figures({"u": scrape(0, at=0.0)}, {"u": scrape(10, at=1.0)})
    told = {each["api"]: each["per_second"] for each in shown["requests"]}
    assert told == {"POST /topics/{topic}/records": 20.0, "HTTP, to nowhere": 10.0}
    assert shown["nodes"][0]["requests_per_second"] == 30.0
    assert shown["faults"] == {"HTTP: 503, per second": 10.0}
    assert any("POST /topics/{topic}/records" in line for line in screen(shown, rows=5))


def test_a_screen_goes_on_while_the_only_broker_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is started again, say; that is when one looks."""
    answers = [b"tidemark_uptime_seconds 9", None, b"tidemark_uptime_seconds 1", b"tidemark_uptime_seconds 2"]

    def get(*_: object, **__: object) -> tuple[int, bytes]:
        if not answers:
            raise KeyboardInterrupt
        answer = answers.pop(0)
        if answer is None:
            raise CommandFailed("it does not answer")
        return 200, answer

    monkeypatch.setattr(top, "get", get)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["top", "--interval", "0.01"]) == 0
    silent, _, lively = capsys.readouterr().out.partition("does not answer")
    assert lively.count("no faults") == 2
    assert "no faults" not in silent
