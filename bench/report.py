"""The result as a table for people and as JSON for programs."""

import json
from pathlib import Path
from typing import Any

from bench.brokers import KAFKA, TIDEMARK
from bench.figures import FIGURES, Rounds, Summary, summaries

HEADINGS = ("", "Tidemark", "Apache Kafka", "ratio", "goal", "")


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    if summary.low == summary.high:
        return number(summary.middle)
    return f"{number(summary.middle)} ({number(summary.low)}–{number(summary.high)})"


def _overlap(ours: Summary, theirs: Summary) -> bool:
    return ours.low <= theirs.high and theirs.low <= ours.high


def verdict(figure: str, by_broker: dict[str, Summary]) -> str:
    """`noise` says that the brokers' rounds overlap: run more rounds before believing the verdict."""
    ours, theirs = by_broker.get(TIDEMARK), by_broker.get(KAFKA)
    if ours is None:
        return ""
    met = FIGURES[figure].met(tidemark=ours.middle, kafka=theirs.middle if theirs else None)
    if met is None:
        return ""
    near = theirs is not None and not FIGURES[figure].absolute and FIGURES[figure].goal == 1.0
    return ("met" if met else "NOT MET") + (" (noise)" if near and theirs and _overlap(ours, theirs) else "")


def ratio_text(by_broker: dict[str, Summary]) -> str:
    ours, theirs = by_broker.get(TIDEMARK), by_broker.get(KAFKA)
    if ours is None or theirs is None or theirs.middle == 0:
        return ""
    ratio = ours.middle / theirs.middle
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def rows(rounds: Rounds) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for name, by_broker in summaries(rounds).items():
        figure = FIGURES[name]
        cells = (_cell(by_broker.get(TIDEMARK)), _cell(by_broker.get(KAFKA)))
        title = f"{figure.title}, {figure.unit}"
        lines.append((title, *cells, ratio_text(by_broker), figure.goal_text(), verdict(name, by_broker)))
    return lines


def table(rounds: Rounds) -> str:
    """Markdown that also reads well in a terminal."""
    lines = [HEADINGS, *rows(rounds)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    texts = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
             for line in lines]  # fmt: skip
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def disturbance(rounds: Rounds) -> float:
    """The largest share of a core, over the cases, that the median round lost to processes not of this run."""
    medians = [
        Summary.of(values).middle
        for figures in rounds.values()
        for name, values in figures.items()
        if name.endswith(".other_cores")
    ]
    return max(medians, default=0.0)


def save_json(path: Path, *, rounds: Rounds, environment: dict[str, str], options: dict[str, Any]) -> None:
    result = {
        "environment": environment,
        "options": options,
        "figures": [
            {
                "figure": name,
                "unit": FIGURES[name].unit,
                "goal": FIGURES[name].goal_text(),
                "ratio": ratio_text(by_broker),
                "verdict": verdict(name, by_broker),
                **{broker: summary.middle for broker, summary in by_broker.items()},
            }
            for name, by_broker in summaries(rounds).items()
        ],
        "rounds": rounds,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_rounds(path: Path) -> tuple[Rounds, dict[str, str]]:
    saved = json.loads(path.read_text(encoding="utf-8"))
    return saved["rounds"], saved["environment"]
