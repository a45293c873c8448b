"""The figures of `tidemark top` as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.cli.output import table
from tidemark.cli.progress import size_text


def screen(shown: dict[str, Any], *, rows: int) -> list[str]:
    lines = [
        *_table(
            [
                "node",
                "up",
                "requests/s",
                "records in/s",
                "in/s",
                "out/s",
                "leads",
                "replicas",
                "connections",
                "cpu",
                "mem",
            ],
            (_node(each) for each in shown["nodes"]),
        ),
        *(f"{url} does not answer" for url in shown["silent"]),
        "",
        *(_faults(shown["faults"], rows) or ([] if shown["silent"] else ["no faults"])),
        *_part(["api", "per s", "p50", "p99"], map(_request, shown["requests"][:rows])),
        *_part(["topic", "records in/s", "in/s", "out/s"], map(_topic, shown["topics"][:rows])),
        *_part(["group", "members", "lag", "behind"], map(_group, shown["groups"][:rows])),
        *_part(
            ["user", "client id", "in/s", "out/s", "of the loop", "throttled"], map(_client, shown["clients"][:rows])
        ),
    ]
    return [_printable(line) for line in lines]


def _printable(line: str) -> str:
    """Clients choose their names: none of them moves the cursor."""
    return line if line.isprintable() else "".join(each if each.isprintable() else "?" for each in line)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    plain = [[_printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return table(heads, plain).split("\n")


def _part(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    found = list(rows)
    return ["", *_table(heads, found)] if found else []


def _node(each: dict[str, Any]) -> Sequence[object]:
    name = f"{each['node_id']}{' *' if each['is_controller'] else ''}"
    return (
        name,
        _duration(each["uptime_seconds"]),
        round(each["requests_per_second"]),
        round(each["records_in_per_second"]),
        size_text(int(each["bytes_in_per_second"])),
        size_text(int(each["bytes_out_per_second"])),
        each["leaders"],
        each["partitions"],
        each["connections"],
        f"{each['cpu_percent']:.0f}%",
        size_text(each["memory_bytes"]),
    )


def _request(each: dict[str, Any]) -> Sequence[object]:
    return each["api"], round(each["per_second"], 1), _time(each["p50_seconds"]), _time(each["p99_seconds"])


def _topic(each: dict[str, Any]) -> Sequence[object]:
    sizes = (size_text(int(each["bytes_in_per_second"])), size_text(int(each["bytes_out_per_second"])))
    return each["topic"] or "all", round(each["records_in_per_second"]), *sizes


def _group(each: dict[str, Any]) -> Sequence[object]:
    return each["group"], each["members"], each["lag"], _duration(each["lag_seconds"])


def _client(each: dict[str, Any]) -> Sequence[object]:
    return (
        each["user"] or "-",
        each["client_id"] or "-",
        size_text(int(each["bytes_in_per_second"])),
        size_text(int(each["bytes_out_per_second"])),
        f"{100 * each['loop_share']:.1f}%",
        f"{100 * each['throttled_share']:.0f}%",
    )


def _faults(faults: dict[str, float], rows: int) -> list[str]:
    return [f"! {text}: {value:g}" for text, value in sorted(faults.items(), key=lambda each: -each[1])[:rows]]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"
