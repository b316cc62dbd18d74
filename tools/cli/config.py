"""`triolog config`: the keys that `triolog serve` would start with, each with its value and where that comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import click

from .serve import DEFAULT_DATA_DIR
from .terminal.grammar import Group
from .terminal.output import draw, json_option, print_json, table
from .terminal.shapes import columns

DEFAULT: Final = "default"


@click.group(cls=Group)
def command() -> None:
    """Show the server's keys with their values and sources."""


@command.command
@click.option("-c", "--config", "file", type=click.Path(exists=True, dir_okay=False), help="TOML file with the server's keys.")
@click.option("--changed", is_flag=True, help="Leave out keys that have their default.")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@json_option
def show(file: str | None, changed: bool, keys: tuple[str, ...], as_json: bool) -> None:
    """Show the keys, or only KEY..., that `triolog serve --config FILE` would start with here, and check them.

    A key comes from a TRIOLOG_* variable, from the file, or from its default; the first of these wins. Topic keys are those of
    [topic_defaults]. `triolog topics describe` shows the keys of one topic.
    """
    from ...protocol.errors import RequestError

    try:
        rows = list(key_rows(file))
    except RequestError as exc:
        raise click.UsageError(exc.message) from exc
    names = {name for name, _, _ in rows}
    if missing := [key for key in keys if key not in names]:
        from .terminal.grammar import nearest

        near = nearest(missing[0], names)
        raise click.UsageError(f"no key {missing[0]}. " + (f"Did you mean {near[0]}?" if near else "Leave KEY out to see all"))
    rows = [row for row in rows if (not keys or row[0] in keys) and not (changed and row[2] == DEFAULT)]
    if as_json:
        print_json({name: {"value": value, "source": source} for name, value, source in rows})
    else:
        draw(table(columns("<key", "<value", "<source"), rows))


def key_rows(file: str | None) -> Iterator[tuple[str, str, str]]:
    """Name, value and source of each key. Raises InvalidConfigError."""
    from ...server.config.broker_config import BROKER_KEYS, BrokerConfig
    from ...server.config.broker_settings import read_settings
    from ...server.config.key import as_text
    from ...server.config.log_config import TOPIC_KEYS

    settings, defaults = read_settings(file, os.environ, {}), read_settings(None, {}, {})
    config = BrokerConfig(**{"data_dirs": (DEFAULT_DATA_DIR,), **settings})
    of_file: dict[str, Any] = {} if file is None else read_settings(file, {}, {})

    def source(name: str, is_in_file: bool) -> str:
        variable = f"TRIOLOG_{name.upper()}"
        return variable if variable in os.environ else str(file) if is_in_file else DEFAULT

    for name in BROKER_KEYS:
        if hasattr(config, name):
            yield name, as_text(getattr(config, name), nothing="not set"), source(name, name in of_file)
    for name, key in TOPIC_KEYS.items():
        value, default = (getattr(each["topic_defaults"], key.attribute) for each in (settings, defaults))
        shown = name if name in BROKER_KEYS else f"topic_defaults {name}"
        yield shown, key.write(value), source(name, value != default)
