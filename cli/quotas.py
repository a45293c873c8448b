"""`tidemark quotas`: how much users, client ids and addresses may use, and who uses what now."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.cli import values
from tidemark.cli.cluster_client import ClusterClient, check
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.messages.alter_client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidemark.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers

QUOTAS: Final = {
    "producer-byte-rate": "bytes per second that may be produced",
    "consumer-byte-rate": "bytes per second that may be fetched",
    "request-percentage": "percent of a broker's time",
    "controller-mutation-rate": "partitions per second that may be created or deleted",
    "connection-creation-rate": "connections per second of an address",
}
EXACT: Final = 0
DEFAULT: Final = 1
TOP_SECONDS: Final = 2.0
TOP_ROWS: Final = 20

Quotas = Mapping[str, float]


class Use(NamedTuple):
    """Of one client, per second, of all brokers together."""

    user: str
    client_id: str
    produced: float
    fetched: float
    request_percent: float
    throttled_percent: float


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("quotas", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    setting = actions.add_parser("set", parents=[client_options()], help="set quotas")
    _add_entity(setting)
    for name, text in QUOTAS.items():
        setting.add_argument(f"--{name}", type=_rate, metavar="N", help=text)
    setting.set_defaults(run=set_, usage_error=setting.error)
    listing = actions.add_parser("list", parents=[client_options()], help="list quotas, all or some")
    _add_entity(listing)
    add_json(listing)
    listing.set_defaults(run=list_)
    removal = actions.add_parser("remove", parents=[client_options()], help="remove quotas")
    _add_entity(removal)
    removal.add_argument("quotas", nargs="*", choices=[*QUOTAS, []], metavar="QUOTA", help="default: all of them")
    removal.set_defaults(run=remove, usage_error=removal.error)
    top = actions.add_parser("top", parents=[client_options()], help="show who uses what now")
    top.add_argument("--seconds", type=values.seconds, default=TOP_SECONDS, metavar="S", help="default: 2")
    add_json(top)
    top.set_defaults(run=top_)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ("user", "a user's name, without User:"),
        ("client-id", "a client id; with a user, of that user only"),
        ("ip", "an address"),
    ):
        one = parser.add_mutually_exclusive_group()
        one.add_argument(f"--for-{name}", type=values.name, metavar="NAME", help=text)
        one.add_argument(f"--for-default-{name}", action="store_true", help=f"every {name} that has none of its own")


def _rate(text: str) -> float:
    try:
        return float(text)  # the broker says what is allowed
    except ValueError:
        raise argparse.ArgumentTypeError(f"{values.clipped(text)} is not a number") from None


def _entity(args: argparse.Namespace) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind in ("user", "client-id", "ip"):
        attribute = kind.replace("-", "_")
        if (name := getattr(args, f"for_{attribute}")) is not None:
            entity[kind] = name
        elif getattr(args, f"for_default_{attribute}"):
            entity[kind] = None
    return entity


# -- set, list, remove -----------------------------------------------------


def set_(args: argparse.Namespace) -> int:
    wanted = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in QUOTAS}
    given = {key: value for key, value in wanted.items() if value is not None}
    entity = _entity(args)
    if not entity or not given:
        args.usage_error("name a user, a client id or an address, and at least one quota")
    with ClusterClient(args) as cluster:
        _alter(cluster, entity, given)
    print(f"Set for {_shown(entity)}: {_values(given)}.")
    return ExitCode.OK


def list_(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        found = _described(cluster, _entity(args))
    if args.json:
        print_json([{"entity": entity, "quotas": quotas} for entity, quotas in found])
    elif found:
        rows = [(_shown(entity), key, _number(value)) for entity, quotas in found for key, value in quotas.items()]
        print(table(("entity", "quota", "per second"), sorted(rows)))
    return ExitCode.OK


def remove(args: argparse.Namespace) -> int:
    entity = _entity(args)
    if not entity:
        args.usage_error("name a user, a client id or an address")
    with ClusterClient(args) as cluster:
        found = [quotas for each, quotas in _described(cluster, entity) if each == entity]
        if not found:
            raise CommandFailed(f"There are no quotas of {_shown(entity)}.", code=ExitCode.NOT_FOUND)
        keys = [name.replace("-", "_") for name in args.quotas] or list(found[0])
        _alter(cluster, entity, dict.fromkeys(keys))
    print(f"Removed for {_shown(entity)}: {', '.join(keys)}.")
    return ExitCode.OK


def _alter(cluster: ClusterClient, entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    request = AlterClientQuotasRequest(entries=[AlterationData(entity=parts, ops=ops)])
    for each in cluster.call_any(request, AlterClientQuotasResponse, 1).entries:
        check(each.error_code, f"The quotas of {_shown(entity)}", each.error_message)


def _described(
    cluster: ClusterClient, entity: Mapping[str, str | None]
) -> Sequence[tuple[dict[str, str | None], Quotas]]:
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    answer = cluster.call_any(DescribeClientQuotasRequest(components=components), DescribeClientQuotasResponse, 1)
    check(answer.error_code, "The quotas", answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]


def _shown(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in sorted(entity.items()))


def _values(quotas: Quotas) -> str:
    return ", ".join(f"{key}={_number(value)}" for key, value in quotas.items())


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


# -- top -------------------------------------------------------------------


def top_(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        before = _sums(cluster)
        time.sleep(args.seconds)
        used = _used(before, _sums(cluster))
    if args.json:
        print_json([each._asdict() for each in used])
    else:
        heads = ("user", "client id", "produced/s", "fetched/s", "time %", "held back %")
        print(table(heads, [_row(each) for each in used[:TOP_ROWS]]))
    return ExitCode.OK


def _row(use: Use) -> Sequence[object]:
    percent = (f"{use.request_percent:.1f}", f"{use.throttled_percent:.0f}")
    return (use.user, use.client_id or "-", round(use.produced), round(use.fetched), *percent)


Client = tuple[str, str]  # user and client id
Sums = dict[int, tuple[float, dict[Client, tuple[float, ...]]]]  # by broker: when, and what each has used by then


def _sums(cluster: ClusterClient) -> Sums:
    from tidemark.protocol.messages.describe_client_usage import (
        DescribeClientUsageRequest,
        DescribeClientUsageResponse,
    )

    sums: Sums = {}
    for broker in cluster.brokers:
        answer = cluster.call(broker, DescribeClientUsageRequest(), DescribeClientUsageResponse, 0)
        check(answer.error_code, "The usage", answer.error_message)
        used: dict[Client, tuple[float, ...]] = {
            (each.user, each.client_id): (
                each.produced_bytes,
                each.fetched_bytes,
                each.request_seconds,
                each.throttle_seconds,
            )
            for each in answer.clients
        }
        sums[broker] = (answer.at_seconds, used)
    return sums


def _used(before: Sums, after: Sums) -> list[Use]:
    rates: dict[Client, list[float]] = {}
    for broker, (at, clients) in after.items():
        began, earlier = before[broker]
        for client, sums in clients.items():
            total = rates.setdefault(client, [0.0] * len(sums))
            for index, (now, then) in enumerate(zip(sums, earlier.get(client, (0.0,) * len(sums)), strict=True)):
                total[index] += (now - then) / max(at - began, 0.001)
    used = [Use(*client, total[0], total[1], total[2] * 100, total[3] * 100) for client, total in rates.items()]
    return sorted(used, key=lambda each: (-(each.produced + each.fetched), -each.request_percent, each))
