"""Standard output: tables for people, JSON for programs, bytes for pipes.

rich is imported when a table, a tree or a bar is drawn, and not before. Everything that a command says leaves through this
module, which escapes control characters: no record, name or message of others can speak to the terminal. Bytes for pipes
(`write`) go out as they are where standard output is no terminal.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from .failures import OutputClosedError
from .times import Zone, parse_zone

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

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
    help="Zone for times without an offset and for output: America/New_York, UTC, ... [default: the system's]",
)

_DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They let what follows be shown in another order than it is written."""
UNPRINTABLE: Final = (
    {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
    | {code: f"\\u{code:04x}" for code in (*_DIRECTIONS, 0x2028, 0x2029)}
    | {9: "\\t", 10: "\\n", 13: "\\r"}
)
_IN_LINES: Final = {code: text for code, text in UNPRINTABLE.items() if code not in (9, 10)}
"""The same for text of several lines."""
_IN_JSON: Final = {code: f"\\u{code:04x}" for code in UNPRINTABLE if code >= 127}
"""JSON escapes the rest itself; these are only inside of strings."""


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
    """Print one JSON document."""
    text = json.dumps(value, indent=2, ensure_ascii=False).translate(_IN_JSON)
    write(text.encode("utf-8", "backslashreplace") + b"\n")
    flush()


def json_line(value: Any) -> bytes:
    """Return a value as one line of JSON lines."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not text.isascii() or "\x7f" in text:
        text = text.translate(_IN_JSON)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def write(data: bytes) -> None:
    """Write to standard output: to a terminal with its control characters escaped, else as it is. Raises OutputClosedError when
    its reader is gone."""
    write_drawn(in_lines(data.decode("utf-8", "backslashreplace")).encode() if sys.stdout.isatty() else data)


def write_drawn(data: bytes) -> None:
    """Write what has control sequences of ours in it, and nothing of others that is not escaped. Raises OutputClosedError."""
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
    """Print one line for people."""
    write_drawn(f"{printable(line)}\n".encode())
    flush()


def say_lines(text: str) -> None:
    """Several lines for people."""
    write_drawn(f"{in_lines(text)}\n".encode())
    flush()


def say_parts(*parts: tuple[str, Mapping[str, Any]]) -> None:
    """Print one line of texts, in styles as `click.style` accepts them if standard output is a terminal."""
    has_colours = sys.stdout.isatty()
    shown_parts = [(printable(text), style) for text, style in parts]
    line = "".join(click.style(text, **style) if style and has_colours else text for text, style in shown_parts)
    write_drawn(f"{line}\n".encode())


def warn(line: str) -> None:
    """Print one line on standard error."""
    click.echo(printable(line), err=True)


def in_lines(text: str) -> str:
    """Text of several lines with its other control characters as escapes."""
    return text.translate(_IN_LINES).encode("utf-8", "backslashreplace").decode()


def _closed() -> OutputClosedError:
    # What is still buffered would raise again when the interpreter flushes it.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return OutputClosedError()


def terminal() -> Console:
    """A console for what rich draws on standard output. Where that is no terminal, lines are as long as they need to be."""
    kind = _escaping_console()
    console = kind(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = kind(highlight=False, markup=False, emoji=False, width=10_000, soft_wrap=True)
    return console


@functools.cache
def _escaping_console() -> type[Console]:
    """A console that escapes the control characters of everything that is drawn; what rich adds itself stays."""
    from rich.console import Console
    from rich.segment import Segment

    class EscapingConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            """Every drawing becomes segments here, whatever it is part of."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(in_lines(segment.text), segment.style)

    return EscapingConsole


def draw(*drawings: RenderableType) -> None:
    """Draw on standard output."""
    console = terminal()
    with console.capture() as capture:
        for drawing in drawings:
            console.print(drawing)
    lines = (line.rstrip() for line in capture.get().split("\n"))
    write_drawn("\n".join(lines).encode("utf-8", "backslashreplace"))
    flush()


def table(columns: Mapping[str, str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> RenderableType:
    """A table; `columns` are headings with the side they are aligned to, `left` or `right`."""
    from rich import box
    from rich.table import Table

    drawn = Table(
        title=None if title is None else printable(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        title_style="bold",
        pad_edge=False,
    )
    for heading, side in columns.items():
        drawn.add_column(printable(heading), justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in row))
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
