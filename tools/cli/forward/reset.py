"""`triolog forward reset`: say where a link goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ..terminal.failures import FailedError
from ..terminal.output import json_option, print_json, say


@click.command
@click.option("--topic", required=True, metavar="NAME", help="The source's topic.")
@click.option("--partition", type=click.IntRange(0), help="Of this partition only.")
@click.option("--start", required=True, metavar="PLACE", help="earliest, latest, an offset, or a time in ISO 8601.")
@click.argument("link", required=False)
@json_option
@click.pass_context
def reset(ctx: click.Context, /, link: str | None, topic: str, partition: int | None, start: str, as_json: bool) -> None:
    """Say where a link goes on with a topic. What forwards it must be stopped before.

    The link's own options stand before `reset`: triolog forward --config FILE reset LINK --topic NAME --start earliest.
    """
    from ....protocol.errors import RequestError
    from ...client.procedures.topics import AtOffset, Place
    from ...forward.errors import ForwardError, SettingsError
    from ...forward.process.place import LinkPlace, default_state_dir
    from ...forward.reset import reset as reset_link
    from ...forward.settings.times import read_start
    from .options import open_source, settings_of

    options: dict[str, Any] = ctx.obj["options"]
    if options["config_file"] is None and not options["topics"] and not options["pattern"]:
        options = {**options, "topics": topic}
    try:
        settings = settings_of(options)
        names = [each.name for each in settings.links]
        if link is None and len(names) > 1:
            raise click.UsageError(f"say which link: {', '.join(names)}")
        chosen = next((each for each in settings.links if link in (None, each.name)), None)
        if chosen is None:
            raise click.UsageError(f"there is no link {link}; there are {', '.join(names)}")
        place: Place = AtOffset(int(start)) if start.isascii() and start.isdigit() else read_start(start)
        held = LinkPlace.take(Path(settings.state_dir or default_state_dir(os.environ)), chosen.name)
        try:
            with open_source(settings, None) as opener:
                source = opener()
                try:
                    offsets = reset_link(chosen, settings.node, source, topic, partition, place)
                finally:
                    source.close()
        finally:
            held.release()
    except (SettingsError, ValueError) as exc:
        raise click.UsageError(str(exc)) from exc
    except (ForwardError, RequestError) as exc:
        raise FailedError(str(exc)) from exc
    if as_json:
        print_json({str(each): offset for each, offset in offsets.items()})
        return
    for each, offset in offsets.items():
        say(f"{each} goes on at {offset}")
