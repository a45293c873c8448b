"""One picture of a run: how many times better Tidemark is than Apache Kafka, figure by figure, with the goals."""

from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Picture

from bench.brokers import KAFKA, TIDEMARK
from bench.figures import FIGURES, Rounds, summaries
from bench.report import number

AHEAD, BEHIND, PLAIN = "#2a7f9e", "#c8553d", "#8a9ba8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    label: str
    factor: float
    goal: float | None
    colour: str
    note: str


def bars(rounds: Rounds) -> list[Bar]:
    found = []
    for name, by_broker in summaries(rounds).items():
        figure, ours, theirs = FIGURES[name], by_broker.get(TIDEMARK), by_broker.get(KAFKA)
        if ours is None or theirs is None or ours.middle <= 0 or theirs.middle <= 0 or ours == theirs:
            continue
        ratio = ours.middle / theirs.middle
        met = figure.met(tidemark=ours.middle, kafka=theirs.middle)
        relative = None if figure.goal is None or figure.absolute else figure.goal
        found.append(
            Bar(
                label=f"{figure.title} [{figure.unit}]",
                factor=ratio if figure.higher_is_better else 1 / ratio,
                goal=relative if relative is None or figure.higher_is_better else 1 / relative,
                colour=PLAIN if met is None else AHEAD if met else BEHIND,
                note=f"{number(ours.middle)} vs {number(theirs.middle)}",
            )
        )
    return found


def times(factor: float) -> str:
    return f"{factor:.0f}×" if factor >= 10 else f"{factor:.2f}×"


def draw(path: Path, *, rounds: Rounds, environment: dict[str, str]) -> bool:
    """Whether there was anything to draw: a run of one broker has no ratios."""
    chosen = bars(rounds)
    if not chosen:
        return False
    picture = Picture(figsize=(11, 1.6 + 0.36 * len(chosen)), layout="constrained")
    axes = picture.subplots()
    widest = max(2.0, *(max(bar.factor, bar.goal or 0) for bar in chosen))
    lowest = min(0.5, *(bar.factor for bar in chosen))
    for row, bar in enumerate(chosen):
        axes.barh(row, bar.factor - 1, left=1, height=0.62, color=bar.colour)
        if bar.goal is not None:
            axes.plot([bar.goal, bar.goal], [row - 0.42, row + 0.42], color="black", linewidth=1.6)
        beyond = max(bar.factor, 1, bar.goal or 0)
        axes.text(beyond * 1.06, row, f"{times(bar.factor)}  ({bar.note})", va="center", fontsize=8.5)
    axes.set_xscale("log")
    axes.set_xlim(lowest * 0.85, widest * 3.2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(chosen)), [bar.label for bar in chosen], fontsize=9)
    axes.invert_yaxis()
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if lowest * 0.85 <= tick <= widest * 3.2]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.margins(y=0.01)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("Tidemark beside Apache Kafka: how many times better (right is better for Tidemark)", loc="left")
    legend = "blue: goal met   red: goal not met   grey: no goal   black tick: the goal   (Tidemark vs Kafka)"
    machine = f"{environment['cpu']}, {environment['memory']}, {environment['file system']}"
    axes.set_xlabel(f"{legend}\n{machine}; Kafka {environment['kafka']}; {environment['date']}", fontsize=8.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=130)
    return True
