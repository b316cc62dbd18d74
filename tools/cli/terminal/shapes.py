"""The parts that commands share: a call of `Admin`, columns, rows for programs, limits, a question before a deletion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .failures import FailedError
from .grammar import F, option
from .output import count_text, json_option, printable, say
from .remote import ServerAddress, call_server, server_option

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...client.connection import Client
    from .progress import NoProgress, ProgressBar

T = TypeVar("T")

MOST: Final = 10_000
"""Entries that a list has at most."""
NOT_KNOWN: Final = "-"
"""Stands in a table for a value that is missing."""

limit_option = option(
    *("-n", "--max", "limit"),
    also=("--limit",),
    type=click.IntRange(0, MOST),
    default=1_000,
    show_default=True,
    help="List at most N.",
    metavar="N",
)
yes_option = option("-y", "--yes", also=("--force", "--no-confirm"), is_flag=True, help="Skip the confirmation.")
only_partitions_option = option(
    *("-p", "--partition", "partitions"),
    also=("--partitions",),
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition (repeatable).",
)


config_option = option(
    *("-c", "--config", "configs"),
    also=("--set", "--add-config", "--topic-config"),
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a topic key (repeatable).",
)


def asks_server(function: F) -> F:
    """The options of a command that asks a server, and prints what it is told for people or for programs."""
    return server_option(json_option(function))


def ask(address: ServerAddress, function: Callable[[Admin], Awaitable[T]]) -> T:
    """Return the result of `function`, which gets an Admin of the server. Errors are those of `call_server`."""

    async def call(client: Client) -> T:
        from ...client.admin import Admin

        return await function(Admin(client))

    return call_server(address, call)


class Sum:
    """Adds up what parts of a task have done, and shows the sum on a bar."""

    def __init__(self, bar: ProgressBar | NoProgress) -> None:
        self._bar = bar
        self._done = 0

    def __call__(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._bar.update(done_bytes=self._done, records=0)


def columns(*headings: str) -> dict[str, str]:
    """The columns of a table: `<name` is aligned to the left, `>name` to the right."""
    return {heading[1:]: "left" if heading[0] == "<" else "right" for heading in headings}


def fields(value: Any, *names: str) -> dict[str, Any]:
    """These attributes by their names."""
    return {name: getattr(value, name) for name in names}


def known(value: int) -> int | None:
    """The number, None for a negative one: the server does not know it."""
    return None if value < 0 else value


def known_values(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same with None for -1 and for an empty text."""
    return {key: None if value in ("", -1) else value for key, value in body.items()}


def say_left_out(count: int, one: str) -> None:
    """Say how many entries the limit has left out, if any."""
    if count:
        say(f"{count_text(count, f'more {one}')}; --max shows more, up to {MOST:,}")


def check_confirmed(yes: bool, question: str, refusal: str) -> None:
    """Raise FailedError unless `--yes` was given or the question is answered with yes."""
    if not yes and not _is_confirmed(question):
        raise FailedError(f"{refusal} without confirmation")


def _is_confirmed(question: str) -> bool:
    """Return whether the user confirmed."""
    try:
        return click.confirm(printable(question), err=True)
    except click.Abort:  # no answer: the end of standard input, or Ctrl-C
        return False


def read_configs(texts: tuple[str, ...], option: str, example: str = "retention.ms=-1") -> dict[str, str]:
    """`KEY=VALUE` options as a map; a usage error names the option."""
    config: dict[str, str] = {}
    for text in texts:
        key, found, value = text.partition("=")
        if not found or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE, as in {example}", param_hint=option)
        if key in config:
            raise click.BadParameter(f"{key} is given twice", param_hint=option)
        config[key] = value
    return config
