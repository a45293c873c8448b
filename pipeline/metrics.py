"""What the pipeline does, for Prometheus: one small HTTP server in the driver."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.progress import Progress


class Metrics:
    """Counts over all batches of this run, and the newest batch of each sink."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._lock = threading.Lock()  # the server's threads read while the runner writes
        self._newest: dict[str, Progress] = {}
        self._rows: dict[str, int] = defaultdict(int)
        self._batches: dict[str, int] = defaultdict(int)
        self._malformed: dict[str, int] = defaultdict(int)
        self._unknown: dict[str, int] = defaultdict(int)
        self._rejected: dict[str, int] = defaultdict(int)
        self.lag: Mapping[str, int] = {}  # by sink, to the logs' ends; replaced as a whole
        self.restarts = 0
        self.lost_records = 0

    def note(self, progress: Progress) -> None:
        with self._lock:
            self._newest[progress.sink] = progress
            self._rows[progress.sink] += progress.rows
            self._batches[progress.sink] += 1
            for source, count in progress.malformed.items():
                self._malformed[f'sink="{progress.sink}",source="{source}"'] += count

            for source, count in progress.unknown.items():
                self._unknown[f'sink="{progress.sink}",source="{source}"'] += count
            for step, judged in progress.judged.items():
                self._rejected[f'sink="{progress.sink}",step="{step}"'] += judged.rejected

    @property
    def rows(self) -> dict[str, int]:
        """By sink, of this run."""
        with self._lock:
            return dict(self._rows)

    @property
    def malformed(self) -> dict[str, int]:
        with self._lock:
            return dict(self._malformed)

    def text(self) -> str:
        with self._lock:
            newest = self._newest
            families: list[tuple[str, str, str, dict[str, float]]] = [
                ("rows_total", "counter", "Rows read.", _by_sink(self._rows)),
                ("batches_total", "counter", "Batches finished.", _by_sink(self._batches)),
                ("malformed_total", "counter", "Malformed records.", {**self._malformed}),
                ("unknown_fields_total", "counter", "Records with fields that the schema lacks.", {**self._unknown}),
                ("rejected_total", "counter", "Rows that break rules.", {**self._rejected}),
                ("restarts_total", "counter", "Queries started again after a failure.", {"": self.restarts}),
                ("lost_records_total", "counter", "Records gone before they were read.", {"": self.lost_records}),
                ("lag_records", "gauge", "Records not read yet.", _by_sink(dict(self.lag))),
                ("rows_per_second", "gauge", "Of the newest batch.",
                 _by_sink({k: v.rows_per_second for k, v in newest.items()})),
                ("batch_seconds", "gauge", "Of the newest batch.",
                 _by_sink({k: v.batch_seconds for k, v in newest.items()})),
                ("state_rows", "gauge", "Rows of state.", _by_sink({k: v.state_rows for k, v in newest.items()})),
                ("state_bytes", "gauge", "Bytes of state.", _by_sink({k: v.state_bytes for k, v in newest.items()})),
            ]  # fmt: skip
            return "".join(self._family(*family) for family in families)

    def serve(self, port: int, *, host: str = "127.0.0.1") -> ThreadingHTTPServer:
        """Port 0 takes a free one (`server_port` says which)."""
        try:
            server = ThreadingHTTPServer((host, port), _handler(self))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            message = f"metrics_port: {port} cannot be listened on at {host}: {why}."
            raise CommandFailed(message, code=ExitCode.USAGE) from None
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        return server

    def _family(self, name: str, kind: str, text: str, values: dict[str, float]) -> str:
        full = f"tidemark_pipeline_{name}"
        lines = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
        for labels, value in values.items():
            inside = f'pipeline="{self._pipeline}"' + (f",{labels}" if labels else "")
            lines.append(f"{full}{{{inside}}} {value}")
        return "\n".join(lines) + "\n"


def _by_sink(values: dict[str, int] | dict[str, float]) -> dict[str, float]:
    return {f'sink="{sink}"': value for sink, value in values.items()}


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A log line per scrape would be noise."""

    return Handler
