"""The load of `transactions` with Kafka's own client: Transactions.java beside this file, run from its source."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.loaders.process import serve

PASSED_ON = ("topic", "records", "partitions", "size", "seconds", "transactions")
WARM_UP = 300  # transactions of each producer, for the client's own compiler


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    options = {name: parameters[name] for name in PASSED_ON if name in parameters}
    options["bootstrap"] = parameters["client"]["bootstrap.servers"]
    options |= {"ids": ",".join(parameters["ids"]), "warm_up": max(WARM_UP, int(parameters.get("warm_up", 0)))}
    options["flush_first"] = int(bool(parameters.get("flush_first")))
    program = Path(__file__).with_name("Transactions.java")
    command = ["java", "-Xmx512M", "-cp", f"{parameters['jars']}/*", str(program)]
    process = subprocess.Popen(
        [*command, *(f"{name}={value}" for name, value in options.items())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError("Transactions.java failed before it began")

    def work() -> dict[str, Any]:
        said, _ = process.communicate("\n")
        report: dict[str, Any] = json.loads(said)
        return {**report, "records": int(report["transactions"]) * int(parameters["records"])}

    return work


if __name__ == "__main__":
    serve(prepare)
