"""Upserts into Delta beside Apache Kafka in one Spark session, in turns: `python -m bench.upserts`.

As in bench.clickstream: a session for every round would mostly measure Java that is not compiled yet.
"""

from __future__ import annotations

import argparse

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.loaders.spark_read import cpu_s
from bench.loaders.spark_upsert import SETTINGS, Upserts
from bench.rounds import BrokerProcess, Figures, add_options, run
from bench.spark_cases import MASTER, fill_with_changes
from tidemark.pipeline.spark import session

TOPIC = "changes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--changes", type=int, default=200_000, help="in ten batches, to a tenth as many keys")
    options = parser.parse_args()
    spark = session("bench", master=MASTER, settings=SETTINGS)
    upserts: dict[str, Upserts] = {}

    def fill(broker: BrokerProcess) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, 2, 1)]).values():
            future.result(60)
        fill_with_changes(broker.bootstrap, TOPIC, options.changes)
        made = Upserts(spark, broker.bootstrap, TOPIC, records=options.changes, keys=options.changes // 10)
        upserts[broker.bootstrap] = made
        made.merge_s()

    def measure(broker: BrokerProcess, number: int) -> Figures:
        del number
        process = psutil.Process(broker.pid)
        began_cpu = cpu_s(process)
        seconds = upserts[broker.bootstrap].merge_s()
        return {
            "records/s": options.changes / seconds,
            "broker CPU s per million": (cpu_s(process) - began_cpu) / options.changes * 1e6,
        }

    run(options, {"log.retention.ms": "-1"}, fill=fill, measure=measure)
    spark.stop()


if __name__ == "__main__":
    main()
