"""`triolog acls`: rules that allow or deny a principal an operation on topics, groups, transactional ids or the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from .terminal.failures import FailedError
from .terminal.grammar import Group, option
from .terminal.output import count_text, draw, print_json, printable, say, table
from .terminal.remote import ServerAddress
from .terminal.shapes import ask, asks_server, check_confirmed, columns, fields, yes_option

if TYPE_CHECKING:
    from ...protocol.native.messages import AclEntry

OPERATIONS: Final = (
    *("all", "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"),
    *("cluster_action", "idempotent_write"),
)
NAMES: Final = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
COLUMNS: Final = columns("<resource", "<name", "<pattern", "<principal", "<host", "<operation", "<permission")
PRODUCER: Final = (("TOPIC", "WRITE"), ("TOPIC", "DESCRIBE"), ("TOPIC", "CREATE"))
CONSUMER: Final = (("TOPIC", "READ"), ("TOPIC", "DESCRIBE"), ("GROUP", "READ"))
"""By kind of resource, as kafka-acls.sh has them."""


@click.group(cls=Group)
def command() -> None:
    """List, add and remove access rules (ACLs). They apply where the key acl_enable is true."""


def _rule_options(function: Any) -> Any:
    for each in (
        click.option("--deny", is_flag=True, help="Deny rules.  [default: allow rules]"),
        option("--host", also=("--allow-host", "--deny-host"), metavar="ADDRESS", help="Client address of the rule."),
        click.option("--prefix", is_flag=True, help="Treat names as prefixes."),
        option("--cluster", means={"--cluster-scope": True}, is_flag=True, help="Rules for the server itself."),
        click.option(
            "--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="Rules for this transactional id."
        ),
        click.option("-g", "--group", "groups", multiple=True, metavar="NAME", help="Rules for this group (* for all)."),
        click.option(
            "-t", "--topic", "topics", multiple=True, metavar="NAME", help="Rules for this topic (* for all, repeatable)."
        ),
        click.option(
            "--operation",
            "operations",
            type=click.Choice(OPERATIONS, case_sensitive=False),
            multiple=True,
            metavar="NAME",
            help=f"{', '.join(OPERATIONS[:6])}, ... (repeatable).",
        ),
    ):
        function = each(function)
    return function


@command.command("list")
@click.argument("principal", required=False)
@_rule_options
@asks_server
def list_acls(principal: str | None, server: ServerAddress, as_json: bool, **chosen: Any) -> None:
    """List all rules, or those that match PRINCIPAL (alice or User:alice) and the options."""
    filters = _filters(principal, chosen)
    found = ask(server, lambda admin: admin.describe_acls(*filters))
    if as_json:
        print_json([fields(each, *NAMES) for each in found])
    elif found:
        draw(table(COLUMNS, [_row(each) for each in found]))
    else:
        say("no rules" if principal is None else f"no rules of {printable(principal)}")


@command.command
@click.argument("principal")
@_rule_options
@click.option("--producer", is_flag=True, help="Grant everything that a producer of the topics needs.")
@click.option("--consumer", is_flag=True, help="Grant everything that a consumer of the topics in the groups needs.")
@asks_server
def add(principal: str, producer: bool, consumer: bool, server: ServerAddress, as_json: bool, **chosen: Any) -> None:
    """Allow (or --deny) PRINCIPAL operations: triolog acls add alice --operation read --topic orders.

    PRINCIPAL is a user, alice or User:alice; * means every user. Without --operation the rule covers all operations.
    """
    from ...protocol.native.messages import AclEntry

    resources = _resources(chosen)
    if not resources:
        raise click.UsageError("no resource given. Use --topic NAME, --group NAME, --transactional-id ID or --cluster")
    roles = (*(PRODUCER if producer else ()), *(CONSUMER if consumer else ()))
    named = [each.upper() for each in chosen["operations"] or (() if roles else ("all",))]
    rules = tuple(
        AclEntry(
            kind,
            name,
            "PREFIXED" if chosen["prefix"] and name != "*" else "LITERAL",
            _principal(principal),
            chosen["host"] or "*",
            operation,
            "DENY" if chosen["deny"] else "ALLOW",
        )
        for kind, name in resources
        for operation in dict.fromkeys([*named, *(what for of, what in roles if of == kind)])
    )
    ask(server, lambda admin: admin.create_acls(*rules))
    if as_json:
        print_json([fields(each, *NAMES) for each in rules])
    else:
        draw(table(COLUMNS, [_row(each) for each in rules]))


@command.command
@click.argument("principal", required=False)
@_rule_options
@yes_option
@asks_server
def remove(principal: str | None, yes: bool, server: ServerAddress, as_json: bool, **chosen: Any) -> None:
    """Remove the rules that match PRINCIPAL and the options: those that `triolog acls list` lists for the same arguments."""
    filters = _filters(principal, chosen)
    found = ask(server, lambda admin: admin.describe_acls(*filters))
    if not found:
        raise FailedError("no such rules. `triolog acls list` lists all")
    rules = count_text(len(found), "rule")
    check_confirmed(yes, f"Remove {rules}?", f"{rules} were not removed; --yes removes")
    gone = ask(server, lambda admin: admin.delete_acls(*filters))
    if as_json:
        print_json([fields(each, *NAMES) for each in gone])
    else:
        say(f"removed {count_text(len(gone), 'rule')}")


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _resources(chosen: dict[str, Any]) -> list[tuple[str, str]]:
    """Kind and name of each resource that the options name."""
    named = (("TOPIC", "topics"), ("GROUP", "groups"), ("TRANSACTIONAL_ID", "transactional_ids"))
    return [
        *((kind, name) for kind, key in named for name in chosen[key]),
        *([("CLUSTER", "kafka-cluster")] if chosen["cluster"] else []),
    ]


def _filters(principal: str | None, chosen: dict[str, Any]) -> list[AclEntry]:
    """A filter for each resource and operation that the options name."""
    from ...protocol.native.messages import AclEntry

    resources: Sequence[tuple[str, str | None]] = _resources(chosen) or [("ANY", None)]
    return [
        AclEntry(
            resource_type=kind,
            resource_name=name,
            pattern_type="PREFIXED" if chosen["prefix"] else "ANY",
            principal=None if principal is None else _principal(principal),
            host=chosen["host"],
            operation=operation.upper(),
            permission="DENY" if chosen["deny"] else "ANY",
        )
        for kind, name in resources
        for operation in chosen["operations"] or ("any",)
    ]


def _row(acl: AclEntry) -> tuple[str, ...]:
    own = {name: printable(str(value)) for name, value in fields(acl, "resource_name", "principal", "host").items()}
    return tuple(own[name] if name in own else str(getattr(acl, name)).lower() for name in NAMES)
