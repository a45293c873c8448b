"""`python -m bench`: the same loads against Tidemark and Apache Kafka, in turns, with a table, JSON and a chart."""

import argparse
import datetime
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import report
from bench.brokers import KAFKA, ROOT, TIDEMARK
from bench.cases import QUICK
from bench.environment import describe
from bench.figures import Rounds
from bench.run import ALL_CASES, Plan, Run, say

# An idle Apache Kafka beside the broker under load takes 0.03 to 0.06; more than this is another program.
QUIET_CORES = 0.2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", metavar="CASE", help=f"one of {', '.join(ALL_CASES)}; may repeat")
    parser.add_argument("--quick", action="store_true", help="small loads, one round, short warm-up: a smoke test")
    parser.add_argument("--rounds", type=int, help="measured rounds per broker and case (default 3)")
    parser.add_argument("--warm-up", type=float, metavar="S", help="seconds of load before measuring (default 30)")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--tidemark-only", action="store_true", help="no Apache Kafka, hence no ratios")
    one.add_argument("--kafka-only", action="store_true", help="Apache Kafka alone")
    parser.add_argument("--loader", choices=("librdkafka", "java"), default="librdkafka",
                        help="java: ProducerPerformance, and kafka-clients for transactions")  # fmt: skip
    parser.add_argument("--jars", type=Path, default=ROOT / ".cache" / "jars", help="Apache Kafka (`make jars`)")
    parser.add_argument("--data", type=Path, default=ROOT / ".cache", help="where the brokers' data lives meanwhile")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="directory for JSON and chart")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="also write the result here, chart beside it")
    parser.add_argument("--redraw", type=Path, metavar="FILE.json", help="print and draw a saved result; runs nothing")
    return parser.parse_args()


def _plan(arguments: argparse.Namespace) -> Plan:
    plan = Plan()
    if arguments.quick:
        plan = replace(plan, rounds=1, warm_up_s=5.0, idle_s=2.0, scale=QUICK)
    if arguments.only:
        plan = replace(plan, cases=tuple(case for case in ALL_CASES if case in arguments.only))
    if arguments.rounds:
        plan = replace(plan, rounds=arguments.rounds)
    if arguments.warm_up is not None:
        plan = replace(plan, warm_up_s=arguments.warm_up)
    if arguments.loader == "java":
        plan = replace(plan, scale=replace(plan.scale, java_jars=arguments.jars))
    if arguments.tidemark_only or arguments.kafka_only:
        plan = replace(plan, brokers=(TIDEMARK,) if arguments.tidemark_only else (KAFKA,))
    return plan


def _complaint(arguments: argparse.Namespace, plan: Plan) -> str | None:
    unknown = sorted(set(arguments.only or ()) - set(ALL_CASES))
    if unknown:
        return f"no case {', '.join(unknown)}; there are {', '.join(ALL_CASES)}"
    needs_jars = KAFKA in plan.brokers or arguments.loader == "java"
    if needs_jars and not any(arguments.jars.glob("kafka_2.13-*.jar")):
        return f"Apache Kafka is not in {arguments.jars}: run `make jars`, or use --tidemark-only"
    if needs_jars and shutil.which("java") is None:
        return "Apache Kafka needs a Java 17 runtime on the PATH, or use --tidemark-only"
    return None


def main() -> int:
    arguments = _arguments()
    if arguments.redraw:
        rounds, environment = report.load_rounds(arguments.redraw)
        _show(rounds, environment, charts=[arguments.redraw.with_suffix(".png")])
        return 0
    plan = _plan(arguments)
    if complaint := _complaint(arguments, plan):
        say(complaint)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no broker outlives us, nor its data
    arguments.data.mkdir(parents=True, exist_ok=True)
    environment = describe(directory=arguments.data.resolve(), jars=arguments.jars)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.data, ignore_cleanup_errors=True) as directory:
        rounds = Run(plan, directory=Path(directory).resolve(), jars=arguments.jars.resolve()).execute()
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    files = [arguments.out / f"{stamp}.json", *([arguments.save] if arguments.save else [])]
    options = {"rounds": plan.rounds, "warm_up_s": plan.warm_up_s, "quick": arguments.quick, "loader": arguments.loader}
    for file in files:
        report.save_json(file, rounds=rounds, environment=environment, options=options)
        say(f"written: {file}")
    _show(rounds, environment, charts=[file.with_suffix(".png") for file in files])
    return 0


def _show(rounds: Rounds, environment: dict[str, str], *, charts: list[Path]) -> None:
    print("; ".join(f"{key} {value}" for key, value in environment.items()))
    print()
    print(report.table(rounds))
    if (cores := report.disturbance(rounds)) > QUIET_CORES:
        print(f"\nOther processes used up to {cores:.2f} cores meanwhile: run it again on a quiet machine.")
    try:
        from bench import chart  # here: matplotlib takes half a second, and is only needed at the end
    except ImportError:
        say("no chart: matplotlib is not installed")
        return
    for path in charts:
        if chart.draw(path, rounds=rounds, environment=environment):
            say(f"drawn: {path}")


if __name__ == "__main__":
    sys.exit(main())
