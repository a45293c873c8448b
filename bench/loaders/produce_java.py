"""Produces with Kafka's own ProducerPerformance, where a second opinion beside librdkafka is wanted."""

import subprocess
from collections.abc import Callable
from typing import Any

from bench.loaders.process import serve


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    records = int(parameters["records"])
    command = ["java", "-Xmx512M", "-cp", f"{parameters['jars']}/*", "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", parameters["topic"], "--num-records", str(records), "--throughput", "-1"]
    command += ["--record-size", str(parameters["size"]), "--producer-props", "acks=all"]
    command += [f"bootstrap.servers={parameters['client']['bootstrap.servers']}"]

    def work() -> dict[str, Any]:
        # Its JVM's start is inside the measured time, the same for either broker.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return {"records": records}

    return work


if __name__ == "__main__":
    serve(prepare)
