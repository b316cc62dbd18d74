"""What commands that change something ask of people, and read of their options."""

from __future__ import annotations

import click

from .output import printable


def confirmed(question: str) -> bool:
    """Whether somebody said yes."""
    try:
        return click.confirm(printable(question), err=True)
    except click.Abort:  # no answer: the end of standard input, or Ctrl-C
        return False


def read_configs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """`KEY=VALUE` options as a map; a usage error names the option."""
    config: dict[str, str] = {}
    for text in texts:
        key, found, value = text.partition("=")
        if not found or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE, as in retention.ms=-1", param_hint=option)
        if key in config:
            raise click.BadParameter(f"{key} is given twice", param_hint=option)
        config[key] = value
    return config
