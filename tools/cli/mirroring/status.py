"""`triolog mirror`: what the links of a server copy, and their lag."""

from __future__ import annotations

from typing import Any

import click

from ..terminal.failures import NotConnectedError
from ..terminal.output import count_text, flush, json_line, json_option, printable, say, say_lines, size_text, write
from .asking import ask_mirror, folder_of, running, state_dir_option


@click.command
@click.argument("links", nargs=-1, metavar="[NAME]...")
@state_dir_option
@json_option
def command(links: tuple[str, ...], state_dir: str | None, as_json: bool) -> None:
    """Show the sources that a server on this machine mirrors: state, lag, problems, records set aside.

    Exit code 3 when no server runs one.
    """
    told = []
    for name in links or running(state_dir):
        try:
            told.append(ask_mirror(name, state_dir, {"command": "status"}))
        except NotConnectedError:
            if links:
                raise
    if not told:
        raise NotConnectedError(f"no server in {folder_of(state_dir)} runs a mirror")
    for each in told:
        if as_json:
            write(json_line(each))
        else:
            _show(each)
    flush()


def _show(told: dict[str, Any]) -> None:
    say(progress_text(told))
    lines = [f"  {each}" for each in trouble_texts(told)]
    lines += aside_lines(told)
    if lines:
        say_lines("\n".join(lines))


def progress_text(told: dict[str, Any]) -> str:
    """Return the state and the lag of a link."""
    lag = "unknown" if told["lag_ms"] < 0 else f"{told['lag_ms']:.0f} ms"
    return (
        f"{printable(told['link'])} from {printable(told['source'])}: {printable(told['state'])}, "
        f"{count_text(told['partitions'], 'partition')}, "
        f"lag {lag}, {count_text(told['lag_records'], 'record')}, about {size_text(told['lag_bytes'])}"
    )


def trouble_texts(told: dict[str, Any]) -> list[str]:
    """Return the error of a link, if it has one, and what it does not copy."""
    return [printable(each) for each in [told["error"], *told["troubles"]] if each]


def aside_lines(told: dict[str, Any]) -> list[str]:
    """Return a line for each file with records that were set aside."""
    return [
        f"  set aside: {printable(each['partition'])} offsets {each['start_offset']} to {each['end_offset'] - 1}, "
        f"{count_text(each['records'], 'record')}, in {printable(each['file'])}"
        for each in told["set_aside"]
    ]
