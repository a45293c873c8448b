"""What a run reads and writes, told as OpenLineage events: to an HTTP endpoint such as Marquez's, or to a file.

The events are JSON of the specification 2-0-2, which is small enough to do without its client and an HTTP library. They
are sent by a thread, so that no batch waits for them, and a receiver that is away ends no pipeline.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from tidemark.pipeline.graph import all_sinks
from tidemark.pipeline.spec import Lineage, Pipeline, Sink, Source, TopicSink, TopicSource

PRODUCER = "urn:tidemark:pipeline"  # a URI, as the specification wants; the project has no address of its own yet
SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
SEND_SECONDS_MAX = 5.0
CLOSE_SECONDS_MAX = 10.0
EVENTS_MAX = 100
RUNNING_EVERY_S = 300.0
Event = dict[str, Any]
Rows = Callable[[], Mapping[str, int]]  # so far, by sink


@contextmanager
def told(pipeline: Pipeline, rows: Rows, *, out: TextIO = sys.stderr) -> Iterator[None]:
    """Around a run: START, RUNNING now and then, and at the end COMPLETE or FAIL."""
    if pipeline.lineage is None:
        yield
        return
    events = Events(pipeline, run=str(uuid.uuid4()))
    sender = Sender(pipeline.lineage, out=out)
    over = threading.Event()

    def tell_now_and_then() -> None:
        while not over.wait(RUNNING_EVERY_S):
            sender.send(events.event("RUNNING", rows=rows()))

    ticking = threading.Thread(target=tell_now_and_then, name="lineage", daemon=True)
    sender.send(events.event("START"))
    ticking.start()
    try:
        yield
    except BaseException as error:
        sender.send(events.event("FAIL", rows=rows(), error=str(error) or type(error).__name__))
        raise
    else:
        sender.send(events.event("COMPLETE", rows=rows()))
    finally:
        over.set()
        sender.close()


class Events:
    """Of one run. Values only: nothing is sent here."""

    def __init__(self, pipeline: Pipeline, *, run: str) -> None:
        assert pipeline.lineage is not None
        self._pipeline = pipeline
        self._run = run
        self._namespace = pipeline.lineage.namespace

    def event(
        self,
        kind: str,
        *,
        rows: Mapping[str, int] | None = None,
        error: str | None = None,
        at: datetime | None = None,
    ) -> Event:
        facets = {"processing_engine": _facet("1-1-1/ProcessingEngineRunFacet", name="spark", version=_spark_version())}
        if error is not None:
            facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", message=error, programmingLanguage="PYTHON")
        job = {"jobType": _facet("2-0-4/JobTypeJobFacet", processingType="STREAMING", integration="TIDEMARK",
                                 jobType="PIPELINE")}  # fmt: skip
        return {
            "eventType": kind,
            "eventTime": (at or datetime.now(UTC)).isoformat(timespec="milliseconds"),
            "run": {"runId": self._run, "facets": facets},
            "job": {"namespace": self._namespace, "name": self._pipeline.name, "facets": job},
            "inputs": [each for source in self._pipeline.sources for each in self._inputs(source)],
            "outputs": [self._output(sink, (rows or {}).get(sink.name)) for sink in all_sinks(self._pipeline)
                        if isinstance(sink, TopicSink) or sink.path],
            "producer": PRODUCER,
            "schemaURL": SPEC,
        }  # fmt: skip

    @property
    def _kafka(self) -> str:
        """A cluster is known by its first address, as the specification's naming has it."""
        return f"kafka://{self._pipeline.bootstrap.split(',')[0].strip()}"

    def _inputs(self, source: Source) -> list[Event]:
        if not isinstance(source, TopicSource):
            return [self._table(source.kind, source.path)]
        topics = source.topics or (source.pattern or "",)
        found = [{"namespace": self._kafka, "name": topic, "facets": {}} for topic in topics]
        if source.backfill is not None and source.backfill.path:
            found.append(self._table(source.backfill.kind, source.backfill.path))
        return found

    def _output(self, sink: Sink, rows: int | None) -> Event:
        if isinstance(sink, TopicSink):
            made: Event = {"namespace": self._kafka, "name": sink.topic_column or sink.topic, "facets": {}}
        else:
            made = self._table(sink.kind, sink.path)
        if rows is not None:
            made["outputFacets"] = {"outputStatistics": _facet("1-0-2/OutputStatisticsOutputDatasetFacet",
                                                               rowCount=rows)}  # fmt: skip
        return made

    def _table(self, kind: str, path: str) -> Event:
        storage = {"storage": _facet("1-0-1/StorageDatasetFacet", storageLayer=kind, fileFormat="parquet")}
        if kind == "iceberg":
            return {"namespace": f"file://{self._pipeline.warehouse}", "name": path, "facets": storage}
        scheme, slashes, rest = path.partition("://")
        if slashes:
            host, _, name = rest.partition("/")
            return {"namespace": f"{scheme}://{host}", "name": name, "facets": storage}
        return {"namespace": "file", "name": path, "facets": storage}


def _facet(schema: str, **values: object) -> Event:
    name = schema.rpartition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{schema}.json#/$defs/{name}", **values}


def _spark_version() -> str:
    import pyspark

    return pyspark.__version__


class Sender:
    """Owns the thread that sends. What cannot be sent is told once, and left out."""

    def __init__(self, lineage: Lineage, *, out: TextIO) -> None:
        self._lineage = lineage
        self._out = out
        self._told = False
        self._waiting: queue.Queue[Event | None] = queue.Queue(EVENTS_MAX)
        self._thread = threading.Thread(target=self._work, name="lineage-sender", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._complain("events wait for their receiver")

    def close(self) -> None:
        """Gives what waits a moment to be sent."""
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._thread.join(CLOSE_SECONDS_MAX)

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._deliver(json.dumps(event))
            except (OSError, urllib.error.URLError) as error:
                self._complain(str(getattr(error, "reason", None) or error))

    def _deliver(self, event: str) -> None:
        if self._lineage.file is not None:
            with open(self._lineage.file, "a", encoding="utf-8") as file:
                file.write(f"{event}\n")
        if self._lineage.url is None:
            return
        headers = {"Content-Type": "application/json"}
        if self._lineage.api_key is not None:
            headers["Authorization"] = f"Bearer {self._lineage.api_key}"
        url = f"{self._lineage.url.rstrip('/')}/api/v1/lineage"
        request = urllib.request.Request(url, data=event.encode(), headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=SEND_SECONDS_MAX):
            pass

    def _complain(self, why: str) -> None:
        if not self._told:
            self._told = True
            print(f"lineage: events are not delivered: {why}. The pipeline goes on.", file=self._out, flush=True)
