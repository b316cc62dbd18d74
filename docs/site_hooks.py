"""What MkDocs asks while it builds the site: the reference of commands is put into its page."""

from __future__ import annotations

from typing import Any

from triolog.tools.cli.reference.command_page import command_page

COMMANDS = "<!-- commands: made by triolog.tools.cli.reference.command_page -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(COMMANDS, command_page()) if COMMANDS in markdown else markdown
