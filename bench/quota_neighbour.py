"""What a client without a quota notices of one that is held to 5 MB/s: `python bench/quota_neighbour.py [--kafka]`.

The neighbour produces 100 B at a time and waits for each answer. It runs alone; beside a librdkafka producer and
consumer that are held to their quota at another broker on this machine, which take from it what any busy process would;
and beside the same clients at its own broker. What these two differ by is this broker's doing. Each in every round,
medians of rounds. With --kafka, both brokers are Apache Kafka. `--rounds N`, `--seconds S` (of each measurement).
"""

import argparse
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "compat-tests")]

from confluent_kafka import Consumer, Producer  # noqa: E402
from harness.batches import batch_of  # noqa: E402
from harness.requests import produce  # noqa: E402
from harness.wire import Wire  # noqa: E402

from bench.brokers import Launch, Running, prepare_kafka, prepare_tidemark  # noqa: E402
from tidemark.cli.main import main as tidemark  # noqa: E402

RATE: Final = 5_000_000
SIZE: Final = 1000
SETTLING_S: Final = 3.0  # until the held client waits: it may use half a second's worth at first, Kafka's more
ALONE: Final = "alone"
BESIDE: Final = tuple(f"{client}, {where}" for client in ("producer", "consumer") for where in ("elsewhere", "here"))


def neighbour(port: int, seconds: float) -> dict[str, float]:
    took = []
    with Wire("127.0.0.1", port) as wire:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            assert produce(wire, "other", batch_of(bytes(100)), acks=1).error_code == 0
            took.append(time.perf_counter() - began)
            time.sleep(0.001)
    cuts = statistics.quantiles(took, n=100)
    return {"rate": len(took) / seconds, "p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}


def held_producer(settings: dict[str, Any], seconds: float) -> float:
    acknowledged, begun = 0, time.perf_counter()

    def delivered(error: object, message: Any) -> None:
        nonlocal acknowledged
        assert error is None
        acknowledged += len(message.value())

    producer = Producer({**settings, "queue.buffering.max.kbytes": 20_000, "log_level": 2})
    while (now := time.perf_counter() - begun) < SETTLING_S + seconds:
        if now < SETTLING_S:
            acknowledged = 0
        try:
            producer.produce("held", bytes(SIZE), on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
    producer.purge()
    return acknowledged / seconds


def held_consumer(settings: dict[str, Any], seconds: float) -> float:
    consumer = Consumer({**settings, "group.id": settings["client.id"], "auto.offset.reset": "earliest"})
    consumer.subscribe(["filled"])
    got, begun = 0, time.perf_counter()
    while (now := time.perf_counter() - begun) < SETTLING_S + seconds:
        messages = consumer.consume(1000, 0.2)
        got = 0 if now < SETTLING_S else got + sum(len(each.value()) for each in messages)
    consumer.close()
    return got / seconds


HELD: Final[dict[str, Callable[[dict[str, Any], float], float]]] = {
    "producer": held_producer,
    "consumer": held_consumer,
}


def prepare(broker: Running, *, rounds: int) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        for topic in ("held", "filled", "other"):
            assert tidemark(["topics", "create", topic, "-b", broker.bootstrap]) == 0
        limits = ["--producer-byte-rate", str(RATE), "--consumer-byte-rate", str(RATE), "-b", broker.bootstrap]
        for client in HELD:
            for number in range(rounds):  # each has an id of its own: one that was idle may use more at first
                assert tidemark(["quotas", "set", "--for-client-id", f"{client}-{number}", *limits]) == 0
    filler = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(150_000):
        filler.produce("filled", bytes(SIZE))
        filler.poll(0)
    filler.flush()


def measured(brokers: dict[str, Running], case: str, number: int, seconds: float) -> dict[str, float]:
    here = brokers["here"].launch.port
    if case == ALONE:
        return neighbour(here, seconds)
    client, where = case.split(", ")
    command = [sys.executable, __file__, "--held", client, "--seconds", str(seconds)]
    target = ["--client-id", f"{client}-{number}", "--bootstrap", brokers[where].bootstrap]
    with subprocess.Popen([*command, *target], stdout=subprocess.PIPE, text=True) as process:
        time.sleep(SETTLING_S)
        figures = neighbour(here, seconds)
        assert process.stdout is not None
        return {**figures, "held_mb": json.loads(process.stdout.read()) / 1e6}


def launch(name: str, directory: Path, *, kafka: bool) -> Launch:
    return (
        prepare_kafka(directory / name, jars=ROOT / ".cache" / "jars") if kafka else prepare_tidemark(directory / name)
    )


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, contextlib.ExitStack() as stack:
        brokers = {
            name: stack.enter_context(Running(launch(name, Path(directory), kafka=arguments.kafka)))
            for name in ("here", "elsewhere")
        }
        for broker in brokers.values():
            prepare(broker, rounds=arguments.rounds)
        neighbour(brokers["here"].launch.port, arguments.warm_up)
        found: dict[str, list[dict[str, float]]] = {case: [] for case in (ALONE, *BESIDE)}
        for number in range(arguments.rounds):
            for case, rounds in found.items():
                rounds.append(measured(brokers, case, number, arguments.seconds))
    middles = {
        case: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        for case, rounds in found.items()
    }
    for case, figures in middles.items():
        ratios = {name: figures[name] / middles[ALONE][name] for name in ("rate", "p50_ms", "p99_ms")}
        spread = sorted(each["p99_ms"] for each in found[case])
        print(
            f"{case:20} {figures['rate']:5.0f}/s ({ratios['rate']:.2f}), p50 {figures['p50_ms']:.2f} ms"
            f" ({ratios['p50_ms']:.2f}), p99 {figures['p99_ms']:.2f} ms ({ratios['p99_ms']:.2f},"
            f" {spread[0]:.2f}–{spread[-1]:.2f}), held to {figures.get('held_mb', 0.0):.2f} MB/s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--held", choices=tuple(HELD), help=argparse.SUPPRESS)
    parser.add_argument("--client-id", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.held:
        settings = {"bootstrap.servers": chosen.bootstrap, "client.id": chosen.client_id}
        print(json.dumps(HELD[chosen.held](settings, chosen.seconds)))
    else:
        main(chosen)
