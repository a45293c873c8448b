"""The end of a run: a summary in words, and one HTML page with charts that needs nothing but a browser."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from tidemark.pipeline.history import History
from tidemark.pipeline.progress import Progress

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 70, 24
COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8f5aa8", "#b08900")


def summary(
    name: str, history: History, *, seconds: float, malformed: int, lag: Mapping[str, int], restarts: int = 0
) -> str:
    lines = [f"{name}: {seconds:.1f} s"]
    for sink, totals in history.totals.items():
        lines.append(
            f"  {sink}: {totals.rows:,} rows in {totals.batches} batch{'es' if totals.batches > 1 else ''}, "
            f"{totals.rows / (totals.busy_seconds or 1e-9):,.0f} rows/s while at work, "
            f"lag {lag.get(sink, 0):,}"
        )
    if malformed:
        lines.append(f"  {malformed:,} malformed records")
    if restarts:
        lines.append(f"  {restarts} {'restart' if restarts == 1 else 'restarts'} after failures")
    return "\n".join(lines)


def sinks_of(history: Sequence[Progress]) -> list[str]:
    return list(dict.fromkeys(each.sink for each in history))


def page(name: str, history: Sequence[Progress], *, summary_text: str) -> str:
    charts = "".join(
        f"<h2>{title}</h2>{chart(history, value)}"
        for title, value in (
            ("Throughput (rows per second)", lambda each: each.rows_per_second),
            ("Lag (records)", lambda each: float(each.lag)),
            ("Batch time (seconds)", lambda each: each.batch_seconds),
            ("State (rows)", lambda each: float(each.state_rows)),
            ("Malformed records", lambda each: float(sum(each.malformed.values()))),
        )
    )
    key = "".join(
        f'<span style="color:{COLOURS[i % len(COLOURS)]}">&#9632; {html.escape(sink)}</span> '
        for i, sink in enumerate(sinks_of(history))
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(name)}</title>"
        "<style>body{font:15px sans-serif;max-width:800px;margin:2em auto;color:#222}h2{font-size:1em;margin-top:2em}"
        "text{font:11px sans-serif;fill:#555}pre{background:#f5f5f5;padding:1em;overflow-x:auto}</style>"
        f"<h1>{html.escape(name)}</h1><pre>{html.escape(summary_text)}</pre><p>{key}</p>{charts}\n"
    )


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def chart(history: Sequence[Progress], value: Callable[[Progress], float]) -> str:
    """One line per sink over time."""
    if not history:
        return "<p>No batch was finished.</p>"
    began, ended = min(each.at for each in history), max(each.at for each in history)
    highest = max(map(value, history)) or 1.0
    span = (ended - began) or 1.0

    def place(each: Progress) -> str:
        x = LEFT + (each.at - began) / span * (WIDTH - LEFT - 10)
        y = HEIGHT - BOTTOM - value(each) / highest * (HEIGHT - BOTTOM - 14)
        return f"{x:.1f},{y:.1f}"

    lines = "".join(
        f'<polyline fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="1.5" points="{points}"/>'
        + "".join(f'<circle r="2" cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" fill="{COLOURS[i % len(COLOURS)]}"/>'
                  for p in points.split())
        for i, sink in enumerate(sinks_of(history))
        for points in [" ".join(place(each) for each in history if each.sink == sink)]
    )  # fmt: skip
    floor = HEIGHT - BOTTOM
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img">'
        f'<line x1="{LEFT}" y1="{floor}" x2="{WIDTH - 10}" y2="{floor}" stroke="#999"/>'
        f'<line x1="{LEFT}" y1="10" x2="{LEFT}" y2="{floor}" stroke="#999"/>'
        f'<text x="{LEFT - 6}" y="18" text-anchor="end">{_rounded(highest)}</text>'
        f'<text x="{LEFT - 6}" y="{floor}" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{_clock(began)}</text>'
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 6}" text-anchor="end">{_clock(ended)}</text>{lines}</svg>'
    )
