"""Manual pages of all commands, made from what `--help` is made from.

`python packaging/man_pages.py FOLDER` writes `FOLDER/triolog.1`, `FOLDER/triolog-topics.1`,
`FOLDER/triolog-topics-create.1` and so on, in the macros of man(7). click-man, the library for this, sees no command that is
imported when it is called, leaves out arguments and epilogs, and passes on backslashes and click's markers unescaped.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click
from triolog.tools.cli.main import main

SECTION: Final = 1
UNWRAPPED: Final = "\b"
"""In click's texts: a line with it alone begins a paragraph whose lines stay as they are."""
WIDEST: Final = 1000
"""Of a summary: none is cut."""


def contexts(
    command: click.Command = main, name: str = "triolog", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """A context for each command: the group's before those of its commands. Hidden ones are left out."""
    ctx = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    yield ctx
    if isinstance(command, click.Group):
        for each in command.list_commands(ctx):
            found = command.get_command(ctx, each)
            if found is not None and not found.hidden:
                yield from contexts(found, each, ctx)


def page_name(ctx: click.Context) -> str:
    """`triolog-topics-create`."""
    return ctx.command_path.replace(" ", "-")


def man_page(ctx: click.Context) -> str:
    """The page of a command."""
    name, command = page_name(ctx), ctx.command
    lines = [
        f'.TH "{_escaped(name.upper())}" {SECTION} "" "triolog {version("triolog")}" "triolog manual"',
        *(".SH NAME", rf"{_escaped(name)} \- {_escaped(_summary(command))}"),
        *(".SH SYNOPSIS", _bold(ctx.command_path), _escaped(" ".join(command.collect_usage_pieces(ctx)))),
        *(".SH DESCRIPTION", *_paragraphs(command.help or "")),
    ]
    if records := [record for each in command.get_params(ctx) if (record := each.get_help_record(ctx)) and record[1]]:
        lines.append(".SH OPTIONS")
        for names, text in records:
            lines += [".TP", _option(names), *_paragraphs(text)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for each in command.list_commands(ctx):
            if (found := command.get_command(ctx, each)) is not None and not found.hidden:
                lines += [".TP", f"{_bold(f'{name}-{each}')}({SECTION})", _line(_summary(found))]
    if command.epilog:
        lines += [".SH NOTES", *_paragraphs(command.epilog)]
    if ctx.parent is not None:
        lines += [".SH SEE ALSO", f"{_bold(page_name(ctx.parent))}({SECTION})"]
    return "\n".join(lines) + "\n"


def write_man_pages(folder: Path) -> list[Path]:
    """Write a page for each command into a folder, which is made where it is not there; answers the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for ctx in contexts():
        path = folder / f"{page_name(ctx)}.{SECTION}"
        path.write_text(man_page(ctx), encoding="utf-8")
        written.append(path)
    return written


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(WIDEST).rstrip(".")


def _paragraphs(text: str) -> Iterator[str]:
    """Lines of a text with blank lines between its paragraphs."""
    for number, paragraph in enumerate(inspect.cleandoc(text).partition("\f")[0].strip().split("\n\n")):
        if number:
            yield ".sp"  # .PP would end the indentation of an option
        first, *others = paragraph.strip("\n").split("\n")
        if first.strip() == UNWRAPPED:
            yield from (".nf", *map(_line, others), ".fi")
        else:
            yield from (_line(each.strip()) for each in (first, *others))


def _option(names: str) -> str:
    """`--config`, `-c FILE`: the names in bold."""
    return " ".join(_bold(word) if word.startswith("-") else _line(word) for word in names.split())


def _bold(text: str) -> str:
    return rf"\fB{_escaped(text)}\fP"


def _line(text: str) -> str:
    """A line that begins with no macro."""
    escaped = _escaped(text)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace('"', r"\(dq")


if __name__ == "__main__":
    write_man_pages(Path(sys.argv[1]))
