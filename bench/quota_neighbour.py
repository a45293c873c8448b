"""What a client without a quota notices of one that is held to 5 MB/s: `python bench/quota_neighbour.py [--kafka]`.

Two brokers run, and at each a neighbour, which produces 100 B at a time and waits for each answer. A librdkafka
producer or consumer is held to its quota at one of the brokers, and at the other in the next round. Everything else on
this machine is the same for both neighbours at the same time: what their figures differ by is the broker's doing. Told
are medians over the rounds of the one beside the held client, and of its ratio to the other; without a held client the
ratio shows what the machine does. With --kafka, both are Apache Kafka. `--rounds N`, `--seconds S` (of each).
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
NOBODY: Final = "nobody"
FIGURES: Final = ("rate", "p50_ms", "p99_ms")


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
        got = 0 if now < SETTLING_S else got + sum(len(each.value() or b"") for each in messages)
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
    for _ in range(150):
        for _ in range(1000):
            filler.produce("filled", bytes(SIZE))
        filler.flush()


def measured(brokers: list[Running], client: str, number: int, seconds: float) -> dict[str, float]:
    """Of the neighbour at the first broker, where the held client is, and `ratio_` to the one at the second."""
    held = None
    if client != NOBODY:
        target = ["--client-id", f"{client}-{number}", "--bootstrap", brokers[0].bootstrap]
        held = _start("--held", client, "--seconds", str(seconds), *target)
        time.sleep(SETTLING_S)
    neighbours = [_start("--neighbour", str(each.launch.port), "--seconds", str(seconds)) for each in brokers]
    beside, other = (json.loads(each.communicate()[0]) for each in neighbours)
    figures: dict[str, float] = {**beside, **{f"ratio_{name}": beside[name] / other[name] for name in FIGURES}}
    if held is not None:
        figures["held_mb"] = json.loads(held.communicate()[0]) / 1e6
    return figures


def _start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)


def launch(name: str, directory: Path, *, kafka: bool) -> Launch:
    return (
        prepare_kafka(directory / name, jars=ROOT / ".cache" / "jars") if kafka else prepare_tidemark(directory / name)
    )


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(Running(launch(name, Path(directory), kafka=arguments.kafka)))
            for name in ("first", "second")
        ]
        for broker in brokers:
            prepare(broker, rounds=arguments.rounds)
            neighbour(broker.launch.port, arguments.warm_up)
        found: dict[str, list[dict[str, float]]] = {client: [] for client in (NOBODY, *HELD)}
        for number in range(arguments.rounds):
            for client, rounds in found.items():
                rounds.append(measured(brokers, client, number, arguments.seconds))
            brokers.reverse()
    for client, rounds in found.items():
        middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        ratios = sorted(each["ratio_p99_ms"] for each in rounds)
        print(
            f"beside {client:9} {middle['rate']:4.0f}/s ({middle['ratio_rate']:.2f} of the other), p50"
            f" {middle['p50_ms']:.2f} ms ({middle['ratio_p50_ms']:.2f}), p99 {middle['p99_ms']:.2f} ms"
            f" ({middle['ratio_p99_ms']:.2f}; {ratios[0]:.2f}–{ratios[-1]:.2f}),"
            f" held to {middle.get('held_mb', 0):.2f} MB/s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--neighbour", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--held", choices=tuple(HELD), help=argparse.SUPPRESS)
    parser.add_argument("--client-id", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.held:
        settings = {"bootstrap.servers": chosen.bootstrap, "client.id": chosen.client_id}
        print(json.dumps(HELD[chosen.held](settings, chosen.seconds)))
    elif chosen.neighbour:
        print(json.dumps(neighbour(chosen.neighbour, chosen.seconds)))
    else:
        main(chosen)
