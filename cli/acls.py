"""`tidemark acls`: add, list and remove access control entries, and explain what they add up to."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.cli import client, values
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from confluent_kafka.admin import AclBindingFilter, AdminClient

    from tidemark.broker.core.acl import Acl
    from tidemark.broker.security.rights import Rights
    from tidemark.cli.options import Subparsers

OPERATIONS: Final = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
)
CLUSTER_NAME: Final = "kafka-cluster"
HEADS: Final = ("principal", "host", "permission", "operation", "resource", "pattern", "name")
STANDS_FOR_ALL: Final = "*"

T = TypeVar("T")


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("acls", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_add, _add_list, _add_remove, _add_explain):
        add(actions, client_options())


def _add_add(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("add", parents=[options], help="allow or deny something")
    _add_entry(parser, required=True)
    parser.set_defaults(run=add)


def _add_list(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("list", parents=[options], help="list entries, all or some")
    _add_entry(parser, required=False)
    add_json(parser)
    parser.set_defaults(run=list_)


def _add_remove(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("remove", parents=[options], help="remove the entries that fit")
    _add_entry(parser, required=False)
    parser.add_argument("--all", action="store_true", help="remove all entries, if nothing else is said")
    parser.set_defaults(run=remove, usage_error=parser.error)


def _add_explain(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "explain", parents=[options], help="whether somebody may do something, and by which entry"
    )
    parser.add_argument("--principal", required=True, type=values.name, metavar="User:NAME")
    parser.add_argument("--operation", required=True, choices=OPERATIONS[1:], metavar="OPERATION")
    parser.add_argument("--host", default="127.0.0.1", type=values.name, help="the client's address")
    _add_resource(parser, required=True)
    add_json(parser)
    parser.set_defaults(run=explain)


def _add_entry(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--principal", required=required, type=values.name, metavar="User:NAME")
    parser.add_argument(
        "--operation", action="append", default=[], choices=OPERATIONS, metavar="OPERATION", dest="operations",
        help=f"one of {', '.join(OPERATIONS)}; may be repeated" + ("" if not required else " (default: all)"),
    )  # fmt: skip
    parser.add_argument("--host", type=values.name, metavar="ADDRESS", help="an address, or a range as 10.0.0.0/8")
    parser.add_argument("--deny", action="store_true", help="forbid it instead: that wins over what is allowed")
    parser.add_argument("--prefixed", action="store_true", help="the name is the beginning of names")
    _add_resource(parser, required=required)


def _add_resource(parser: argparse.ArgumentParser, *, required: bool) -> None:
    resource = parser.add_mutually_exclusive_group(required=required)
    resource.add_argument("--topic", type=values.name, metavar="NAME", help="* stands for all")
    resource.add_argument("--group", type=values.name, metavar="NAME")
    resource.add_argument("--transactional-id", type=values.name, metavar="NAME")
    resource.add_argument("--cluster", action="store_true")


def _resource(args: argparse.Namespace) -> tuple[str, str] | None:
    """Its type, as librdkafka names it, and its name."""
    if args.cluster:
        return "BROKER", CLUSTER_NAME
    for kind in ("topic", "group", "transactional_id"):
        if getattr(args, kind) is not None:
            return kind.upper(), getattr(args, kind)
    return None


# -- entries -------------------------------------------------------------


def add(args: argparse.Namespace) -> int:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    resource = _resource(args)
    assert resource is not None
    kind, name = resource
    permission = AclPermissionType.DENY if args.deny else AclPermissionType.ALLOW
    pattern = ResourcePatternType.PREFIXED if args.prefixed else ResourcePatternType.LITERAL
    bindings = [
        AclBinding(
            ResourceType[kind],
            name,
            pattern,
            args.principal,
            args.host or STANDS_FOR_ALL,
            AclOperation[_enum_name(operation)],
            permission,
        )
        for operation in args.operations or ("all",)
    ]
    admin = client.admin(args)
    for binding, future in admin.create_acls(bindings, request_timeout=args.timeout).items():
        _result(future, args)
        print(f"Added: {_sentence(binding)}.")
    return ExitCode.OK


def list_(args: argparse.Namespace) -> int:
    rows = sorted(_row(each) for each in _found(client.admin(args), args, _filters(args)))
    if args.json:
        print_json([dict(zip(HEADS, row, strict=True)) for row in rows])
    elif rows:
        print(table(HEADS, rows))
    return ExitCode.OK


def remove(args: argparse.Namespace) -> int:
    named = args.principal or args.host or args.operations or args.deny or args.prefixed or _resource(args)
    if bool(named) == args.all:
        args.usage_error("say which entries: by their principal, host, operation or resource; or --all")
    admin = client.admin(args)
    removed = 0
    for future in admin.delete_acls(_filters(args), request_timeout=args.timeout).values():
        for binding in _result(future, args):
            print(f"Removed: {_sentence(binding)}.")
            removed += 1
    if not removed:
        raise CommandFailed("No entry fits.", code=ExitCode.NOT_FOUND)
    return ExitCode.OK


def _found(admin: AdminClient, args: argparse.Namespace, filters: list[Any]) -> list[Any]:
    found = [_result(admin.describe_acls(each, request_timeout=args.timeout), args) for each in filters]
    bindings = {_row(binding): binding for bindings in found for binding in bindings}
    if not bindings:
        _check_right_to_describe(admin, args)
    return list(bindings.values())


def _check_right_to_describe(admin: AdminClient, args: argparse.Namespace) -> None:
    """librdkafka takes an answer that is refused for an empty one."""
    described = _result(admin.describe_cluster(include_authorized_operations=True, request_timeout=args.timeout), args)
    if not any(operation.name == "DESCRIBE" for operation in described.authorized_operations or ()):
        raise CommandFailed("Access control entries: you may not describe the cluster (CLUSTER_AUTHORIZATION_FAILED).")
    if _authorizer_settings(admin, args)["authorizer.class.name"] == "":
        raise CommandFailed("Access control entries: the brokers have no authorizer (SECURITY_DISABLED).")


def _filters(args: argparse.Namespace) -> list[Any]:
    """One for each operation that was named."""
    kind, name = _resource(args) or ("ANY", None)
    return [
        _filter(
            kind=kind,
            name=name,
            pattern="PREFIXED" if args.prefixed else "ANY",
            principal=args.principal,
            host=args.host,
            operation=_enum_name(operation),
            permission="DENY" if args.deny else "ANY",
        )
        for operation in args.operations or ("any",)
    ]


def _filter(
    *,
    kind: str = "ANY",
    name: str | None = None,
    pattern: str = "ANY",
    principal: str | None = None,
    host: str | None = None,
    operation: str = "ANY",
    permission: str = "ANY",
) -> AclBindingFilter:
    from confluent_kafka import admin

    make: Callable[..., AclBindingFilter] = admin.AclBindingFilter  # None stands for anything: its types do not say so
    return make(
        admin.ResourceType[kind],
        name,
        admin.ResourcePatternType[pattern],
        principal,
        host,
        admin.AclOperation[operation],
        admin.AclPermissionType[permission],
    )


def _enum_name(operation: str) -> str:
    return operation.replace("-", "_").upper()


def _result(future: Future[T], args: argparse.Namespace) -> T:
    from confluent_kafka import KafkaException

    try:
        return future.result(args.timeout)
    except KafkaException as error:
        raise client.failure(error.args[0], about="Access control entries", bootstrap=args.bootstrap) from None


def _row(binding: Any) -> tuple[str, ...]:
    kind = "cluster" if binding.restype.name == "BROKER" else _words(binding.restype.name)
    return (
        binding.principal,
        binding.host,
        _words(binding.permission_type.name),
        _words(binding.operation.name),
        kind,
        _words(binding.resource_pattern_type.name),
        binding.name,
    )


def _words(name: str) -> str:
    return name.lower().replace("_", "-")


def _sentence(binding: Any) -> str:
    principal, host, permission, operation, kind, pattern, name = _row(binding)
    verb = "may" if permission == "allow" else "may not"
    names = f"{name}…" if pattern == "prefixed" else name
    where = "anywhere" if host == STANDS_FOR_ALL else host
    return f"{principal} {verb} {operation} {kind} {names} from {where}"


# -- what they add up to -------------------------------------------------


def explain(args: argparse.Namespace) -> int:
    """The same code decides as in the broker, on the entries and settings that the broker tells."""
    from tidemark.broker.core.acl import AclOperation, ResourceType

    resource = _resource(args)
    assert resource is not None
    kind = ResourceType.CLUSTER if args.cluster else ResourceType[resource[0]]
    decision = _rights(args).decide(AclOperation[_enum_name(args.operation)], kind, resource[1])
    reason = decision.reason if decision.rule is None else f"by the rule: {decision.rule}"
    if args.json:
        rule = None if decision.rule is None else str(decision.rule)
        print_json({"allowed": decision.is_allowed, "reason": decision.reason, "rule": rule})
        return ExitCode.OK
    what = f"{args.operation} {_words(kind.name)} {resource[1]} from {args.host}"
    print(f"May {args.principal} {what}? {'Yes' if decision.is_allowed else 'No'}, {reason}.")
    return ExitCode.OK


def _rights(args: argparse.Namespace) -> Rights:
    from tidemark.broker.core.principal import Principal
    from tidemark.broker.metadata.acl_index import AclIndex
    from tidemark.broker.security.rights import Rights

    admin = client.admin(args)
    bindings = _found(admin, args, [_filter()])
    settings = _authorizer_settings(admin, args)
    kind, colon, name = args.principal.partition(":")
    if not colon:
        raise CommandFailed(f"{args.principal} is not like User:NAME.", code=ExitCode.USAGE)
    return Rights(
        Principal(kind, name),
        args.host,
        AclIndex().changed(added=map(_acl, bindings)),
        is_super=args.principal in [user.strip() for user in settings["super.users"].split(";")],
        allows_without_acl=settings["allow.everyone.if.no.acl.found"] == "true",
    )


def _acl(binding: Any) -> Acl:
    from tidemark.broker.core.acl import Acl, AclOperation, PatternType, Permission, ResourceType

    return Acl(
        ResourceType(binding.restype.value),
        binding.name,
        PatternType(binding.resource_pattern_type.value),
        binding.principal,
        binding.host,
        AclOperation(binding.operation.value),
        Permission(binding.permission_type.value),
    )


def _authorizer_settings(admin: AdminClient, args: argparse.Namespace) -> dict[str, str]:
    """As one of the brokers has them: they are to be the same on all."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    node_id = min(admin.list_topics(timeout=args.timeout).brokers)
    resource = ConfigResource(ResourceType.BROKER, str(node_id))
    [future] = admin.describe_configs([resource], request_timeout=args.timeout).values()
    entries = _result(future, args)
    names = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")
    return {name: (entries[name].value or "") if name in entries else "" for name in names}
