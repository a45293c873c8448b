"""The end of a run: a summary in words, and one HTML page with charts that needs nothing but a browser."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from tidemark.pipeline.history import History
from tidemark.pipeline.progress import Progress

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 180, 70, 10, 12, 26
DOTS_MAX = 100
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
        "<style>body{font:15px sans-serif;max-width:800px;margin:2em auto;padding:0 1em;color:#222}"
        "h2{font-size:1em;margin-top:2em}text{font:11px sans-serif;fill:#555}"
        "pre{background:#f5f5f5;padding:1em;overflow-x:auto}</style>"
        f"<h1>{html.escape(name)}</h1><pre>{html.escape(summary_text)}</pre><p>{key}</p>{charts}\n"
    )


def _finished(batch: Progress) -> float:
    """When its lag was counted, too."""
    return batch.at + batch.batch_seconds


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def chart(history: Sequence[Progress], value: Callable[[Progress], float]) -> str:
    """One line per sink over time, with a point where a batch ended."""
    if not history:
        return "<p>No batch was finished.</p>"
    highest = max(map(value, history))
    if not highest:
        return "<p>0 all the time.</p>"
    began, ended = min(map(_finished, history)), max(map(_finished, history))
    span = (ended - began) or 1.0
    floor = HEIGHT - BOTTOM

    def x(at: float) -> float:
        return LEFT + (at - began) / span * (WIDTH - LEFT - RIGHT)

    def y(shown: float) -> float:
        return floor - shown / highest * (floor - TOP)

    levels = "".join(
        f'<line x1="{LEFT}" y1="{y(level):.1f}" x2="{WIDTH - RIGHT}" y2="{y(level):.1f}" stroke="#ddd"/>'
        f'<text x="{LEFT - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{_rounded(level)}</text>'
        for level in (0.0, highest / 2, highest)
    )
    lines = "".join(
        _line(
            [(x(_finished(each)), y(value(each))) for each in history if each.sink == sink], COLOURS[i % len(COLOURS)]
        )
        for i, sink in enumerate(sinks_of(history))
    )
    end = f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{_clock(ended)}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img">{levels}'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{_clock(began)}</text>{end if ended > began else ""}{lines}</svg>'
    )


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    """Points are shown while there are few enough to tell them apart; a single one would be no line."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = points if len(points) <= DOTS_MAX else ()
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>' + "".join(
        f'<circle r="2.5" cx="{x:.1f}" cy="{y:.1f}" fill="{colour}"/>' for x, y in dots
    )
