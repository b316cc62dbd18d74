"""`triolog promote`: make the mirrors of a running server writable."""

from __future__ import annotations

import click

from ..terminal.failures import FailedError
from ..terminal.output import count_text, json_option, print_json, printable, say, say_lines
from .asking import PROMOTE_S, ask_mirror, running, state_dir_option
from .status import aside_lines


@click.command
@click.argument("link", required=False, metavar="[NAME]")
@click.option("--incomplete", is_flag=True, help="Promote before the first copy is complete.")
@state_dir_option
@json_option
def command(link: str | None, incomplete: bool, state_dir: str | None, as_json: bool) -> None:
    """End the copying from a source, and let clients write to its mirrors on this server.

    NAME is needed if the server has several sources. Stop clients of the source first, if it still runs: records that it
    accepts from now on are not here. The leader epochs rise, so clients notice the change.
    """
    if link is None:
        names = running(state_dir)
        if len(names) != 1:
            raise FailedError(f"name one of the mirrors: {', '.join(names)}" if names else "no server here runs a mirror")
        link = names[0]
    told = ask_mirror(link, state_dir, {"command": "promote", "incomplete": incomplete}, PROMOTE_S)
    if as_json:
        print_json(told)
        return
    done = told["promoted"]
    at = ", as the source had them at one moment" if done["has_cut"] else ""
    topics, partitions = count_text(len(done["topics"]), "topic"), count_text(done["partitions"], "partition")
    say(f"{printable(link)} promoted: {topics}, {partitions}{at}")
    if lines := aside_lines(told):
        say_lines("\n".join(lines))
    say("Remove [[mirror]] from the configuration before the next start.")
