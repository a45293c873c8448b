"""The cases of the shipped pipelines, run as `tidemark pipeline test` runs them: the first, and the rest after it."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.brokers import ROOT
from bench.loaders.process import serve
from tidemark.pipeline.spec import load
from tidemark.pipeline.testing.bench import Bench
from tidemark.pipeline.testing.cases import cases_beside, read_cases
from tidemark.pipeline.testing.command import start_spark

TIMES = 3  # few cases ship; each is run so often


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    del parameters
    files = sorted((ROOT / "config" / "pipelines").glob("*.cases.yaml"))
    pipelines = [load(each.with_name(each.name.replace(".cases.yaml", ".yaml"))) for each in files]
    cases = [(each, case) for each in pipelines for case in read_cases(cases_beside(each.file))] * TIMES

    def work() -> dict[str, Any]:
        began = time.monotonic()
        spark = start_spark(pipelines[0], Path(tempfile.mkdtemp(prefix="bench-cases-")))
        bench = Bench(spark)
        took = []
        for pipeline, case in cases:
            outcome = bench.run_case(pipeline, case)
            if not outcome.passed:
                raise RuntimeError(outcome.text())
            took.append(time.monotonic() - began)
        return {"records": 0, "cases": len(cases), "first_s": took[0], "rest_s": took[-1] - took[0]}

    return work


if __name__ == "__main__":
    serve(prepare)
