"""`triolog quotas`: what users, client ids and addresses may use of a server (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from ..terminal.failures import FailedError
from ..terminal.grammar import Group
from ..terminal.output import draw, json_option, print_json, printable, say, table
from ..terminal.remote import ServerAddress, server_option_beside_user
from ..terminal.shapes import ask, columns, read_configs

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
COLUMNS: Final = columns("<user", "<client id", "<ip", "<quota", ">value")
DEFAULT: Final = "<default>"
"""As Kafka's own tools show it."""


@click.group(cls=Group)
def command() -> None:
    """List, set and remove client quotas: limits for a user, a client id, both together, or an address."""


def _entity_options(function: Any) -> Any:
    for option in (
        click.option("--default-ip", is_flag=True, help="Apply to all addresses without a quota of their own."),
        click.option("--ip", metavar="ADDRESS", help="Apply to this client address."),
        click.option("--default-client-id", is_flag=True, help="Apply to all client ids without a quota of their own."),
        click.option("--client-id", metavar="ID", help="Apply to this client id."),
        click.option("--default-user", is_flag=True, help="Apply to all users without a quota of their own."),
        click.option("--user", metavar="NAME", help="Apply to this user."),
    ):
        function = option(function)
    return function


def _entity(named: Mapping[str, Any]) -> dict[str, str | None]:
    """Whom the options name. Raises UsageError."""
    entity: dict[str, str | None] = {}
    for kind, option in ((USER, "user"), (CLIENT_ID, "client_id"), (IP, "ip")):
        name, is_default = named[option], named[f"default_{option}"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --default-{kind} exclude each other")
        if name is not None or is_default:
            entity[kind] = name
    if not entity:
        raise click.UsageError(
            "no user, client id or address. Give --user, --client-id, --ip, or --default-user, "
            "--default-client-id, --default-ip"
        )
    return entity


@command.command("list")
@server_option_beside_user
@json_option
def list_quotas(server: ServerAddress, as_json: bool) -> None:
    """List all quotas."""
    quotas = ask(server, lambda admin: admin.describe_quotas())
    if as_json:
        print_json([{"entity": entity, "quotas": values} for entity, values in quotas])
    elif quotas:
        draw(table(COLUMNS, [_row(entity, key, value) for entity, values in quotas for key, value in values.items()]))
    else:
        say(f"{server} has no quotas. `triolog quotas set --client-id ID producer_byte_rate=BYTES` sets one")


@command.command("set")
@_entity_options
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@server_option_beside_user
@json_option
def set_quotas(values: tuple[str, ...], server: ServerAddress, as_json: bool, **named: Any) -> None:
    """Set quotas of a user, a client id, both, or an address; in effect at once.

    producer_byte_rate and consumer_byte_rate are in bytes a second. request_percentage is a share of one processor.
    controller_mutation_rate counts partitions created and deleted a second. For an address, connection_creation_rate counts
    connections a second.
    """
    entity = _entity(named)
    wanted = {key: _number(key, text) for key, text in read_configs(values, "KEY=VALUE").items()}
    ask(server, lambda admin: admin.alter_quotas(entity, wanted))
    if as_json:
        print_json({"entity": entity, "quotas": wanted})
    else:
        say(f"{_named(entity)} has {' '.join(f'{key}={_text(value)}' for key, value in wanted.items())}")


@command.command
@_entity_options
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@server_option_beside_user
@json_option
def remove(keys: tuple[str, ...], server: ServerAddress, as_json: bool, **named: Any) -> None:
    """Remove the quotas KEY, or all quotas, of a user, a client id, both, or an address."""
    entity = _entity(named)
    quotas = ask(server, lambda admin: admin.describe_quotas())
    there = next((values for each, values in quotas if each == entity), {})
    if missing := set(keys) - there.keys():
        raise FailedError(f"{_named(entity)} has no quota {min(missing)}. `triolog quotas list` lists the quotas")
    gone = sorted(keys or there)
    if not gone:
        raise FailedError(f"{_named(entity)} has no quota. `triolog quotas list` lists the quotas")
    ask(server, lambda admin: admin.alter_quotas(entity, dict.fromkeys(gone)))
    if as_json:
        print_json({"entity": entity, "removed": gone})
    else:
        say(f"{_named(entity)} has no {' '.join(gone)} any more")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number, as in {key}=1000", param_hint="KEY=VALUE") from None


def _text(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,}"


def _named(entity: Mapping[str, str | None]) -> str:
    """`user a, client-id <default>`."""
    return ", ".join(f"{kind} {DEFAULT if name is None else printable(name)}" for kind, name in entity.items())


def _row(entity: Mapping[str, str | None], key: str, value: float) -> tuple[str, ...]:
    names = [("-" if kind not in entity else printable(entity[kind] or DEFAULT)) for kind in (USER, CLIENT_ID, IP)]
    return *names, key, _text(value)
