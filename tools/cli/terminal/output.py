"""Standard output: tables for people, JSON for programs, bytes for pipes.

rich is imported when a table, a tree or a bar is drawn, and not before. Text that comes from records is shown with its
control characters escaped, so that no record can speak to the terminal.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from .failures import OutputClosedError
from .times import Zone, parse_zone

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def _read_zone(ctx: click.Context, param: click.Parameter, value: str | None) -> Zone:
    try:
        return parse_zone(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


timezone_option = click.option(
    "--timezone",
    "zone",
    callback=_read_zone,
    metavar="ZONE",
    help="Of times without an offset, and of those shown: America/New_York, UTC, ... [default: the system's]",
)

UNPRINTABLE: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\\t", 10: "\\n", 13: "\\r"}


def printable(text: str) -> str:
    """The text with control characters, and halves of characters, as escapes."""
    return text.translate(UNPRINTABLE).encode("utf-8", "backslashreplace").decode()


def shown(data: bytes | None) -> str:
    """A key or value in a table: its text, `null`, or for bytes that are no text their hexadecimal digits."""
    if data is None:
        return "null"
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def as_json_value(data: bytes | None) -> str | dict[str, str] | None:
    """A key or value in JSON: its text, null, or for bytes that are no text `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def print_json(value: Any) -> None:
    """One JSON document."""
    write(json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
    flush()


def json_line(value: Any) -> bytes:
    """One line of JSON lines."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def write(data: bytes) -> None:
    """Write to standard output. Raises OutputClosedError when its reader is gone."""
    try:
        sys.stdout.buffer.write(data)
    except BrokenPipeError as exc:
        raise _closed() from exc


def flush() -> None:
    """Hand what was written to the reader. Raises OutputClosedError when it is gone."""
    try:
        sys.stdout.buffer.flush()
    except BrokenPipeError as exc:
        raise _closed() from exc


def say(line: str) -> None:
    """One line for people."""
    write(f"{line}\n".encode("utf-8", "backslashreplace"))
    flush()


def _closed() -> OutputClosedError:
    # What is still buffered would raise again when the interpreter flushes it.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return OutputClosedError()


def terminal() -> Console:
    """A console for what rich draws on standard output. Where that is no terminal, lines are as long as they need to be."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=10_000, soft_wrap=True)
    return console


def draw(*drawings: RenderableType) -> None:
    """Draw on standard output."""
    console = terminal()
    with console.capture() as capture:
        for drawing in drawings:
            console.print(drawing)
    lines = (line.rstrip() for line in capture.get().splitlines())
    write("".join(f"{line}\n" for line in lines).encode())
    flush()


def table(columns: Mapping[str, str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> RenderableType:
    """A table; `columns` are headings with the side they are aligned to, `left` or `right`."""
    from rich import box
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", pad_edge=False)
    for heading, side in columns.items():
        drawn.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def count_text(number: int, one: str, many: str | None = None) -> str:
    """`1 record`, `1,234 records`, `2 entries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size_text(size_bytes: float) -> str:
    """`17 B`, `1.5 KiB`, `2.0 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size_bytes /= 1024
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} TiB"
