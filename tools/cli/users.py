"""`triolog users`: users who log in with SCRAM, whose credentials the server stores (KIP-554)."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final, TextIO

import click

from .terminal.failures import FailedError
from .terminal.grammar import Group
from .terminal.output import draw, print_json, printable, say, table
from .terminal.remote import ServerAddress, asked_password
from .terminal.shapes import ask, asks_server, check_confirmed, columns, yes_option

if TYPE_CHECKING:
    from ..client.admin import Admin

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096
"""Kafka's default."""

mechanism_option = click.option(
    *("--mechanism", "mechanisms"),
    type=click.Choice(list(HASHES), case_sensitive=False),
    multiple=True,
    default=tuple(HASHES),
    help="Only for this mechanism (repeatable).  [default: both]",
)


@click.group(cls=Group)
def command() -> None:
    """List, add and remove users who log in with SCRAM. Users of the key sasl_users_file are not among them."""


@command.command("list")
@asks_server
def list_users(server: ServerAddress, as_json: bool) -> None:
    """List all stored users with their mechanisms."""
    users = ask(server, lambda admin: admin.describe_users())
    if as_json:
        print_json([{"user": user, "mechanisms": mechanisms} for user, mechanisms in users.items()])
    elif users:
        draw(table(columns("<user", "<mechanisms"), [(printable(user), ", ".join(each)) for user, each in users.items()]))
    else:
        say(f"{server} stores no users. `triolog users add NAME` adds one")


@command.command
@click.argument("name")
@click.option(
    "--new-password-file", type=click.File("r"), help="File with the password of NAME; - is standard input.  [default: ask]"
)
@mechanism_option
@asks_server
def add(name: str, new_password_file: TextIO | None, mechanisms: tuple[str, ...], server: ServerAddress, as_json: bool) -> None:
    """Add user NAME, or change the password. The password does not leave this machine: the server gets a salted hash.

    The user can log in where native_security or kafka_security names SASL. `triolog acls add` grants rights.
    """
    password = (
        asked_password(name, "--new-password-file FILE")
        if new_password_file is None
        else new_password_file.read().removesuffix("\n")
    )
    if not password:
        raise FailedError(f"the password of {name} is empty")
    salted = {}
    for mechanism in mechanisms:
        salt = secrets.token_bytes(20)
        salted[mechanism] = ITERATIONS, salt, hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, ITERATIONS)
    ask(server, lambda admin: admin.alter_users(name, salted))
    if as_json:
        print_json({"user": name, "mechanisms": list(mechanisms)})
    else:
        say(f"{name} can log in with {' and '.join(mechanisms)}")


@command.command
@click.argument("name")
@mechanism_option
@yes_option
@asks_server
def remove(name: str, mechanisms: tuple[str, ...], yes: bool, server: ServerAddress, as_json: bool) -> None:
    """Remove user NAME. Open connections stay open."""

    async def stored(admin: Admin) -> list[str]:
        return [each for each in (await admin.describe_users()).get(name, ()) if each in mechanisms]

    gone = ask(server, stored)
    if not gone:
        raise FailedError(f"the server stores no user {name}. `triolog users list` lists its users")
    check_confirmed(yes, f"Remove user {name} ({', '.join(gone)})?", f"{name} was not removed; --yes removes")
    ask(server, lambda admin: admin.alter_users(name, dict.fromkeys(gone)))
    if as_json:
        print_json({"user": name, "removed": gone})
    else:
        say(f"removed {name}")
