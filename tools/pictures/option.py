"""`--svg [FILE]` of commands that can draw: where the picture goes. What draws is loaded when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..cli.terminal.failures import FailedError
from ..cli.terminal.output import flush, printable, say, write

if TYPE_CHECKING:
    from .canvas import Canvas

_STANDARD_OUTPUT: Final = "-"

svg_option = click.option(
    "--svg",
    is_flag=False,
    flag_value=_STANDARD_OUTPUT,
    metavar="[FILE]",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Draw a picture instead (SVG), into FILE or standard output.",
)


def one_way_to_print(svg: str | None, as_json: bool) -> None:
    """Raises UsageError when both were asked for."""
    if svg is not None and as_json:
        raise click.UsageError("--svg and --json exclude each other")


def write_picture(path: str, picture: Canvas) -> None:
    """Write the picture; of a file it is said how large it is. Raises FailedError."""
    data = picture.markup().encode()
    if path == _STANDARD_OUTPUT:
        write(data)
        flush()
        return
    try:
        Path(path).write_bytes(data)
    except OSError as exc:
        raise FailedError(f"{printable(path)}: {exc.strerror}. Choose another file with --svg FILE") from exc
    say(f"a picture of {len(data):,} bytes in {printable(path)}")
