"""`python -m bench.cluster`: three Tidemark nodes beside three Apache Kafka nodes, one load at a time, in turns."""

import argparse
import datetime
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench import report
from bench.brokers import KAFKA, ROOT, TIDEMARK
from bench.cluster_brokers import Cluster
from bench.cluster_cases import CASES, QUICK, ClusterScale, Topics
from bench.cluster_many import QUICK as QUICK_MANY
from bench.cluster_many import ManyScale, many
from bench.environment import describe
from bench.figures import Rounds
from bench.run import say

MANY = "cluster-many"
PRACTISED = ("cluster-produce", "cluster-acks")  # the first round is not kept


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--only", action="append", choices=(*CASES, MANY), help="may repeat")
    parser.add_argument("--quick", action="store_true", help="small loads, one round, hardly warmed up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many-rounds", type=int, default=1, help=f"of {MANY}, which takes minutes")
    parser.add_argument("--warm-up", type=float, default=30.0, metavar="S", help="seconds of load before measuring")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--tidemark-only", action="store_true")
    one.add_argument("--kafka-only", action="store_true")
    parser.add_argument("--jars", type=Path, default=ROOT / ".cache" / "jars", help="Apache Kafka (`make jars`)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="directory for the JSON file")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="also write the result here")
    return parser.parse_args()


def _warm_up(cluster: Cluster, topics: Topics, *, seconds: float) -> None:
    say(f"  warming up {cluster.name} for {seconds:.0f} s")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for case in ("cluster-produce", "cluster-acks"):
            CASES[case](cluster, topics, QUICK)


def measure(arguments: argparse.Namespace, directory: Path) -> Rounds:
    names = [TIDEMARK] * (not arguments.kafka_only) + [KAFKA] * (not arguments.tidemark_only)
    rounds: Rounds = {name: {} for name in names}
    cases = arguments.only or [*CASES, MANY]
    in_turns = [case for case in cases if case != MANY]
    if in_turns:
        _measure_in_turns(arguments, directory, in_turns, rounds)
    if MANY in cases:
        say(f"  {MANY}")
        for number in range(1 if arguments.quick else arguments.many_rounds):
            for name in names:
                with Cluster(name, directory / f"{name}-{MANY}-{number}", jars=arguments.jars) as cluster:
                    _keep(rounds[name], many(cluster, QUICK_MANY if arguments.quick else ManyScale()))
    return rounds


def _measure_in_turns(arguments: argparse.Namespace, directory: Path, cases: list[str], rounds: Rounds) -> None:
    scale = QUICK if arguments.quick else ClusterScale()
    with ExitStack() as stack:
        clusters = [stack.enter_context(Cluster(name, directory / name, jars=arguments.jars)) for name in rounds]
        pairs = [(cluster, Topics(cluster)) for cluster in clusters]
        for cluster, topics in pairs:
            _warm_up(cluster, topics, seconds=3.0 if arguments.quick else arguments.warm_up)
        for case in cases:
            say(f"  {case}")
            practice = int(case in PRACTISED and not arguments.quick)
            for number in range(practice + (1 if arguments.quick else arguments.rounds)):
                for cluster, topics in pairs:
                    values = CASES[case](cluster, topics, scale)
                    say(f"    {cluster.name:9} " + ", ".join(f"{key} {value:,.3g}" for key, value in values.items()))
                    if number >= practice:
                        _keep(rounds[cluster.name], values)


def _keep(rounds: dict[str, list[float]], values: dict[str, float]) -> None:
    for figure, value in values.items():
        rounds.setdefault(figure, []).append(value)


def main() -> int:
    arguments = _arguments()
    if not arguments.tidemark_only and not any(arguments.jars.glob("kafka_2.13-*.jar")):
        say(f"Apache Kafka is not in {arguments.jars}: run `make jars`, or use --tidemark-only")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no broker outlives us
    (ROOT / ".cache").mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-cluster-", dir=ROOT / ".cache"))
    try:
        environment = describe(directory=directory, jars=arguments.jars)
        rounds = measure(arguments, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    for path in [arguments.out / f"cluster-{stamp}.json", *filter(None, [arguments.save])]:
        report.save_json(path, rounds=rounds, environment=environment, options={"rounds": arguments.rounds})
        say(f"written: {path}")
    print(report.table(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
