"""Hooks of MkDocs: the reference of commands is made from the commands, and put into its page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click
from triolog.tools.cli.main import main

COMMANDS = "<!-- commands: made by docs/site_hooks.py -->"
CODE_PARAGRAPH = "\b"
"""click's mark of a paragraph that is shown as it stands."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(COMMANDS, command_page()) if COMMANDS in markdown else markdown


def command_page() -> str:
    """A section for each command, in the order of the help; subcommands follow their group."""
    return "\n\n".join(_sections(main, click.Context(main, info_name="triolog", **main.context_settings)))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}"
    yield f"```\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield from _paragraphs(command.help or "")
    options = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    rows = [f"| `{names}` | {_text(help_)} |" for names, help_ in options if help_ and not names.endswith("--help")]
    if rows:
        yield "\n".join(["| option | |", "|---|---|", *rows])
    yield from _paragraphs(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from _sections(subcommand, click.Context(subcommand, info_name=name, parent=context))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        if paragraph.startswith(CODE_PARAGRAPH):
            yield f"```\n{paragraph.removeprefix(CODE_PARAGRAPH).strip()}\n```"
        elif paragraph:
            yield _text(paragraph)


def _text(text: str) -> str:
    """As Markdown: what looks like a tag, a link or emphasis is text here."""
    text = text.replace("|", "\\|").replace("&", "&amp;").replace("<", "&lt;")
    return text.replace("*", "\\*").replace("[", "\\[").replace("_", "\\_")
