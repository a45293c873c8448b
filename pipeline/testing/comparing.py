"""Rows that came against rows that were expected: what is missing, what is too many, and which field differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

LINES_MAX = 40
_ABSENT = object()


def differences(
    expected: Sequence[Any], got: Sequence[Any], *, ignore: Sequence[str] = (), ordered: bool = False
) -> list[str]:
    """Lines for a person; none if all is as expected. Of a row only what is expected of it is compared."""
    wanted = [without(each, ignore) for each in expected]
    left = list(enumerate(without(each, ignore) for each in got))
    lines: list[str] = []
    unmatched = []
    for index, want in enumerate(wanted):
        at = next(
            (n for n, (place, have) in enumerate(left) if fits(want, have) and (not ordered or place == index)), None
        )
        if at is None:
            unmatched.append(want)
        else:
            left.pop(at)
    rest = [have for _, have in left]
    for want in unmatched:
        near = min(rest, key=lambda have: len(paths(want, have)), default=None)
        if near is None or len(paths(want, near)) > max(1, _size(want) // 2):
            lines.append(f"missing     {shown(want)}")
            continue
        rest.remove(near)
        lines.append(f"expected    {shown(want)}")
        lines.append(f"got         {shown(near)}")
        lines += [f"            {path}: expected {shown(a)}, got {shown(b)}" for path, a, b in paths(want, near)]
    lines += [f"unexpected  {shown(have)}" for have in rest]
    if not lines and ordered and len(wanted) == len(got):
        return []
    return lines if len(lines) <= LINES_MAX else [*lines[:LINES_MAX], f"… and {len(lines) - LINES_MAX} more lines"]


def fits(want: Any, have: Any) -> bool:
    return not paths(want, have)


def paths(want: Any, have: Any, at: str = "") -> list[tuple[str, Any, Any]]:
    """The places where the two differ. A field that is null is one that is not there."""
    if isinstance(want, Mapping) and isinstance(have, Mapping):
        names = dict.fromkeys([*want, *have])
        return [
            found
            for name in names
            for found in paths(want.get(name), have.get(name), f"{at}.{name}" if at else str(name))
        ]
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        return [f for n, (a, b) in enumerate(zip(want, have, strict=True)) for f in paths(a, b, f"{at}[{n}]")]
    return [] if want == have and isinstance(want, bool) == isinstance(have, bool) else [(at or "row", want, have)]


def without(row: object, names: Sequence[str]) -> object:
    """The row without what is not compared: `at` anywhere, or `value.at` at its place."""
    if isinstance(row, list):
        return [without(each, names) for each in row]
    if not isinstance(row, Mapping):
        return row
    below = {name: [each.partition(".")[2] for each in names if each.startswith(f"{name}.")] for name in row}
    return {name: without(each, [*names, *below[name]]) for name, each in row.items() if name not in names}


def _size(row: Any) -> int:
    if isinstance(row, Mapping):
        return sum(_size(each) for each in row.values())
    return 1


def shown(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, default=str)
