"""The clickstream pipeline beside Apache Kafka in one Spark session: `python -m bench.clickstream`.

`python -m bench --only spark-clickstream` starts a session for every round, and most of what it then measures is Java
that is not compiled yet. Here one session practises on both brokers, and then takes them in turns.
"""

from __future__ import annotations

import argparse
import statistics

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.loaders.spark_pipeline import Clickstream
from bench.loaders.spark_read import cpu_s
from bench.rounds import BrokerProcess, Figures, add_options, run
from bench.spark_cases import MASTER, fill_with_clicks
from tidemark.pipeline.spark import session

TOPIC = "clicks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--events", type=int, default=200_000, help="of the backlog")
    parser.add_argument("--probes", type=int, default=10, help="events that are followed in each round; 0: none")
    options = parser.parse_args()
    spark = session("bench", master=MASTER, settings={"spark.ui.enabled": "false"})
    pipelines: dict[str, Clickstream] = {}

    def fill(broker: BrokerProcess) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(f"{TOPIC}.counts", 1, 1)]).values():
            future.result(60)
        fill_with_clicks(broker.bootstrap, TOPIC, options.events)
        pipelines[broker.bootstrap] = Clickstream(spark, broker.bootstrap, TOPIC)
        pipelines[broker.bootstrap].backlog_s()

    def measure(broker: BrokerProcess, number: int) -> Figures:
        del number
        pipeline, process = pipelines[broker.bootstrap], psutil.Process(broker.pid)
        began_cpu = cpu_s(process)
        seconds = pipeline.backlog_s()
        figures = {
            "records/s": options.events / seconds,
            "broker CPU s per million": (cpu_s(process) - began_cpu) / options.events * 1e6,
        }
        if options.probes:
            found = pipeline.latencies_s(probes=options.probes)
            figures |= {"event to count, p50, s": statistics.median(found), "longest, s": max(found)}
        return figures

    run(options, {"log.retention.ms": "-1"}, fill=fill, measure=measure)
    spark.stop()


if __name__ == "__main__":
    main()
