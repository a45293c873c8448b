"""Cases of pipelines as pytest's tests: one item per case, one Spark session for all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.pipeline.spec import Pipeline, load
from tidemark.pipeline.testing.bench import Bench
from tidemark.pipeline.testing.cases import Case, pipeline_beside, read_cases

_BENCH = pytest.StashKey[Bench]()


class CaseFailed(Exception):
    """The message is what a person needs to see."""


class CasesFile(pytest.File):
    pipeline: Path

    def collect(self) -> Iterator[pytest.Item]:
        for case in read_cases(self.path):
            item: CaseItem = CaseItem.from_parent(self, name=case.name)
            item.case = case
            yield item


class CaseItem(pytest.Item):
    case: Case

    def runtest(self) -> None:
        assert isinstance(self.parent, CasesFile)
        from tidemark.pipeline.testing.command import FOR_CASES

        pipeline = load(self.parent.pipeline, secrets=FOR_CASES)
        outcome = _bench(self.config, pipeline).run_case(pipeline, self.case)
        if not outcome.passed:
            raise CaseFailed(outcome.text())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value) if isinstance(excinfo.value, CaseFailed) else str(excinfo.getrepr())

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"case: {self.name}"


def collected(path: Path, parent: pytest.Collector) -> CasesFile | None:
    pipeline = pipeline_beside(path)
    if pipeline is None:
        return None
    found: CasesFile = CasesFile.from_parent(parent, path=path)
    found.pipeline = pipeline
    return found


def _bench(config: pytest.Config, pipeline: Pipeline) -> Bench:
    """Started with the first case, and stopped with the process."""
    from tidemark.pipeline.testing.command import start_spark

    if _BENCH not in config.stash:
        spark = start_spark(pipeline, Path(tempfile.mkdtemp(prefix="tidemark-test-")))
        config.stash[_BENCH] = Bench(spark)
        config.add_cleanup(spark.stop)
    return config.stash[_BENCH]
