"""`tidemark log`: look into the files of a log, check them, and repair them, without a broker.

They work on directories, not on a cluster, and read what Apache Kafka wrote as well.
"""

# The one place where the command line uses storage code (storage/tools).

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.cli import values
from tidemark.cli.options import add_json
from tidemark.cli.output import print_json
from tidemark.cli.progress import progress, size_text
from tidemark.cli.records import shown
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers
    from tidemark.storage.tools import Finding, PartitionPlace, Stats

T = TypeVar("T")

DIRECTORY_HELP: Final = "a log directory, or a partition's directory in one"
_COMPACTION_PASSES: Final = 3  # over the bytes: they are read twice, and written


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("log", help=help, description=__doc__)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_dump(actions)
    _add_verify(actions)
    _add_repair(actions)
    _add_stats(actions)
    _add_compact(actions)


def _add_dump(actions: Subparsers) -> None:
    parser = actions.add_parser("dump", help="print what the files of a log hold")
    parser.add_argument("path", metavar="DIR|FILE", help=f"{DIRECTORY_HELP}, or one file of a log")
    parser.add_argument("--records", action="store_true", help="print the records of each batch, too")
    add_json(parser, help="print a JSON object per line")
    parser.set_defaults(run=dump)


def _add_verify(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "verify",
        help="check every byte of a log; exit code 1 if it is not sound",
        description="Reads every batch and every index, and says what is not as it was written. Nothing is changed."
        " While a broker is writing to the directory, the newest of what it writes may look unfinished.",
    )
    parser.add_argument("path", metavar="DIR", help=DIRECTORY_HELP)
    add_json(parser)
    parser.set_defaults(run=verify)


def _add_repair(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "repair",
        help="rebuild what can be derived from the batches of a log",
        description="Rebuilds indexes, epochs and the like where they are wrong. Records are never dropped, unless"
        " --truncate-at says from which offset on. The broker must be stopped.",
    )
    parser.add_argument("path", metavar="DIR", help=DIRECTORY_HELP)
    parser.add_argument(
        "--truncate-at",
        type=values.int64,
        metavar="OFFSET",
        help="drop every record from this offset on; only with one partition's directory",
    )
    add_json(parser)
    parser.set_defaults(run=repair)


def _add_stats(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "stats",
        help="count records, keys, tombstones, batches, codecs and producers of a log",
        description="Reads every record of the partitions named, and says what is in them. Nothing is changed.",
    )
    parser.add_argument("path", metavar="TOPIC|DIR", help=f"{DIRECTORY_HELP}; or a topic, with --log-dir")
    parser.add_argument(
        "--log-dir", action="append", default=[], metavar="DIR", help="where to look for the topic; may be repeated"
    )
    add_json(parser)
    parser.set_defaults(run=stats)


def _add_compact(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "compact",
        help="compact the log of a stopped broker: of every key only the last record stays",
        description="Compacts a log by the rules of cleanup.policy=compact, all but the segment that was written to"
        " last. The broker must be stopped, and have been stopped cleanly. A log with records that have no key is"
        " refused. Of a directory with many partitions, only those are compacted that a broker has compacted before:"
        " the files do not say which topics are meant to be. A partition whose own directory is named is compacted.",
    )
    parser.add_argument("path", metavar="DIR", help=DIRECTORY_HELP)
    parser.add_argument(
        "--delete-retention-ms",
        type=values.int64,
        default=24 * 60 * 60 * 1000,
        metavar="MS",
        help="how long tombstones stay after the compaction that first meets them (a day)",
    )
    add_json(parser)
    parser.set_defaults(run=compact)


# Dumping


def dump(args: argparse.Namespace) -> int:
    from tidemark.storage import tools

    code = ExitCode.OK
    with _reading(args.path):
        for path, entries in tools.dump(args.path, records=args.records):
            if not args.json:
                print(f"# {path}")
            for entry in entries:
                is_sound = entry["type"] != "damage" and entry.get("is_valid", True)
                code = code if is_sound else ExitCode.FAILED
                print(_as_json(path, entry) if args.json else _as_line(entry))
    return code


def _as_json(path: str, entry: dict[str, Any]) -> str:
    fields: dict[str, Any] = {"file": path}
    for name, value in entry.items():
        if name == "headers":
            fields[name] = [{"name": header, **shown("value", content)} for header, content in value]
        elif isinstance(value, bytes):
            fields |= shown(name, value)
        else:
            fields[name] = value
    return json.dumps(fields, ensure_ascii=False)


def _as_line(entry: dict[str, Any]) -> str:
    indent = "  " if entry["type"] in ("record", "marker") else ""
    return f"{indent}{entry['type']} " + " ".join(
        f"{name}={_text(value)}" for name, value in entry.items() if name != "type"
    )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return json.dumps(value.decode("utf-8", "backslashreplace"), ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(f"{name}: {_text(content)}" for name, content in value) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# Verifying


def verify(args: argparse.Namespace) -> int:
    from tidemark.storage import tools

    with _reading(args.path):
        places = _places(args.path)
        found = [each for _, each in _results(places, tools.verify)]
    if args.json:
        print_json([_finding(each) for each in found])
    else:
        for each in found:
            print(each)
        print(_summary(places, found))
        _print_unclean(places, found)
    return ExitCode.FAILED if found else ExitCode.OK


def _summary(places: list[PartitionPlace], found: list[Finding]) -> str:
    size = size_text(sum(each.size_bytes for each in places))
    logs = f"{len(places)} log{'s' * (len(places) != 1)}, {size}"
    if not found:
        return f"{logs}: sound."
    damaged = sum(not each.is_derived for each in found)
    return f"{logs}: {damaged} places in batches are damaged, {len(found) - damaged} in files that can be rebuilt."


def _finding(each: Finding) -> dict[str, Any]:
    return {"file": each.path, "position": each.position, "reason": each.reason, "can_be_rebuilt": each.is_derived}


# Repairing


def repair(args: argparse.Namespace) -> int:
    from tidemark.storage import tools

    done: list[str] = []
    left: list[Finding] = []
    with _reading(args.path), ExitStack() as held:
        places = _places(args.path)
        if args.truncate_at is not None and len(places) > 1:
            raise CommandFailed("--truncate-at needs the directory of one partition.", code=ExitCode.USAGE)
        _lock(places, held)
        for _, repaired in _results(places, partial(tools.repair, truncate_at=args.truncate_at)):
            done += repaired.done
            left += repaired.left
    if args.json:
        print_json({"done": done, "left": [_finding(each) for each in left]})
    else:
        _print_repaired(done, left)
        _print_unclean(places, left)
    return ExitCode.FAILED if left else ExitCode.OK


def _print_repaired(done: list[str], left: list[Finding]) -> None:
    for line in done:
        print(line)
    for each in left:
        print(each)
    if left:
        print("What is left is damage to batches: fetch the log anew from another replica (remove the partition's")
        print("directory while the broker is stopped), or give records up with --truncate-at OFFSET.")
    elif not done:
        print("Nothing to repair.")


def _print_unclean(places: list[PartitionPlace], found: list[Finding]) -> None:
    """What looks like damage may be the end of what was being written."""
    from tidemark.storage import tools

    if all(each.is_derived for each in found):
        return
    for path in sorted({each.log_directory for each in places}):
        if not tools.was_stopped_cleanly(tools.REAL_FILES, path):
            print(f"{path} was not closed cleanly: a start of its broker cuts off what was not written to its end.")


# Counting


def stats(args: argparse.Namespace) -> int:
    from tidemark.storage import tools

    with _reading(args.path):
        found = [each for _, each in _results(_topic_places(args), tools.stats)]
    if args.json:
        print_json([{**asdict(each), "batch_bytes_mean": round(each.batch_bytes_mean, 1)} for each in found])
    else:
        for each in found:
            _print_stats(each)
    return ExitCode.OK


def _topic_places(args: argparse.Namespace) -> list[PartitionPlace]:
    if os.path.exists(args.path) and not args.log_dir:
        return _places(args.path)
    if not args.log_dir:
        reason = f"There is no directory {args.path}. If it is a topic, say where its logs are: --log-dir DIR."
        raise CommandFailed(reason, code=ExitCode.NOT_FOUND)
    places = [each for path in args.log_dir for each in _places(path) if each.topic == args.path]
    if not places:
        raise CommandFailed(f"There is no log of {args.path} in {', '.join(args.log_dir)}.", code=ExitCode.NOT_FOUND)
    return sorted(places, key=lambda each: each.partition)


def _print_stats(each: Stats) -> None:
    codecs = ", ".join(f"{count} {name}" for name, count in each.codecs.items())
    more = "more than " if each.has_more_keys else ""
    offsets = f"offsets {each.first_offset}..{each.end_offset}"
    sizes = f"{each.batch_bytes_min}..{each.batch_bytes_max} bytes, {each.batch_bytes_mean:.0f} on average"
    transactions = f"{each.transactional_batches} batches of transactions, {each.markers} markers"
    print(f"{each.topic}-{each.partition}: {size_text(each.size_bytes)} in {each.segments} segments, {offsets}")
    print(f"  records     {each.records}, of them {each.tombstones} tombstones, {each.without_key} without a key")
    print(f"  keys        {more}{each.keys}")
    print(f"  batches     {each.batches} ({codecs}), {sizes}")
    print(f"  producers   {each.producers}; {transactions}")
    cleaned = "never compacted" if each.cleaned_up_to is None else f"compacted up to offset {each.cleaned_up_to}"
    print(f"  compaction  {cleaned}, {each.dirty_ratio:.0%} dirty")


# Compacting


def compact(args: argparse.Namespace) -> int:
    from tidemark.storage import tools

    with _reading(args.path), ExitStack() as held:
        places = _places(args.path)
        _lock(places, held)
        done = []
        is_named = [each.path for each in places] == [os.path.abspath(args.path)]
        left_alone = [each for each in places if not is_named and not tools.is_compacted(tools.REAL_FILES, each)]
        places = [each for each in places if each not in left_alone]
        with progress(_COMPACTION_PASSES * sum(each.size_bytes for each in places)) as bar:
            for place in places:
                advance = partial(bar.advance, label=place.name)
                done.append(
                    (place, tools.compact(place, advance=advance, delete_retention_ms=args.delete_retention_ms))
                )
    if args.json:
        told = [(place, asdict(each)) for place, each in done] + [(place, {"left_alone": True}) for place in left_alone]
        print_json([{"topic": place.topic, "partition": place.partition, **each} for place, each in told])
        return ExitCode.OK
    for place, result in done:
        if result.bytes_before:
            sizes = f"{size_text(result.bytes_before)} became {size_text(result.bytes_after)}"
            print(f"{place.name}: {result.records_before} records in {sizes}, {result.records_after} are left.")
        else:
            print(f"{place.name}: nothing to compact.")
    for place in left_alone:
        print(f"{place.name}: left alone, as it was never compacted. To do so all the same: log compact {place.path}")
    return ExitCode.OK


# What they have in common


def _results(
    places: list[PartitionPlace], work: Callable[[PartitionPlace], Iterator[int | T]]
) -> Iterator[tuple[PartitionPlace, T]]:
    """What the work on each partition's log comes to, while a bar shows how far it is."""
    with progress(sum(each.size_bytes for each in places)) as bar:
        for place in places:
            for step in work(place):
                if isinstance(step, int):
                    bar.advance(step, place.name)
                else:
                    bar.clear()
                    yield place, step


def _lock(places: list[PartitionPlace], held: ExitStack) -> None:
    from tidemark.storage import tools

    for each in sorted({each.log_directory for each in places}):
        held.enter_context(tools.locked(each))


def _places(path: str) -> list[PartitionPlace]:
    from tidemark.storage import tools

    return tools.find_partitions(tools.REAL_FILES, path)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    from tidemark.storage import tools

    try:
        yield
    except tools.NoLogHere as error:
        raise CommandFailed(str(error), code=ExitCode.NOT_FOUND) from None
    except tools.StorageError as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        code = ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.FAILED
        raise CommandFailed(f"{error.filename or os.path.abspath(path)}: {error.strerror}.", code=code) from None
