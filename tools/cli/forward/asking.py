"""`triolog forward pause`, `resume`, `drain`, `reset`, and how links that run are reached: by sockets in their directories."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Final

import click

from ..terminal.failures import FailedError, NotConnectedError
from ..terminal.output import count_text, json_option, print_json, say
from ..terminal.places import POSITION_HELP, position_option, read_position
from ..terminal.times import LOCAL

ASK_S: Final = 10.0

state_dir_option = click.option("--state-dir", type=click.Path(file_okay=False), help="State directory of the links.")


def state_folder(state_dir: str | None) -> Path:
    """Return the folder that holds the links."""
    from ...forward.process.place import default_state_dir

    said = state_dir or _group().get("state_dir")
    return Path(said) if said else default_state_dir(os.environ, link_kind())


def link_kind() -> str:
    """Return the kind of links that the command is for: `forward` or `ingest`."""
    return str(_group().get("kind", "forward"))


def _group() -> dict[str, Any]:
    context = click.get_current_context(silent=True)
    found: dict[str, Any] = {} if context is None else context.obj or {}
    return found


def ask_link(link: str, state_dir: str | None, request: dict[str, Any], timeout_s: float | None = ASK_S) -> dict[str, Any]:
    """Send a request to a link and return the response. Raises NotConnectedError, FailedError."""
    return ask_in(state_folder(state_dir), "link", link, request, timeout_s)


def ask_in(folder: Path, kind: str, link: str, request: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
    """Send a request to the process of a link, or of a mirror, whose socket is in a folder. Raises as `ask_link` does."""
    from ...forward.process.place import CONTROL, ask

    try:
        answer = ask(str(folder / link / CONTROL), request, timeout_s)
    except (OSError, ValueError) as exc:
        raise NotConnectedError(f"no process in {folder} runs {kind} {link} ({exc})") from exc
    if "state" not in answer:
        raise FailedError(f"{kind} {link}: {answer.get('error', 'no response')}")
    return answer


def _order(command: str, link: str, state_dir: str | None, *, as_json: bool, **more: Any) -> dict[str, Any]:
    answer = ask_link(link, state_dir, {"command": command, **more}, timeout_s=None if command == "drain" else 10.0)
    if as_json:
        print_json(answer)
    return answer


@click.command
@click.argument("link")
@state_dir_option
@json_option
def pause(link: str, state_dir: str | None, as_json: bool) -> None:
    """Pause a link, over restarts too, until `resume`."""
    if _order("pause", link, state_dir, as_json=as_json) and not as_json:
        say(f"{link} is paused")


@click.command
@click.argument("link")
@state_dir_option
@json_option
def resume(link: str, state_dir: str | None, as_json: bool) -> None:
    """Resume a paused link."""
    if _order("resume", link, state_dir, as_json=as_json) and not as_json:
        say(f"{link} resumed")


@click.command
@click.argument("link")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), help="Seconds to wait.  [default: no limit]")
@state_dir_option
@json_option
def drain(link: str, timeout_s: float | None, state_dir: str | None, as_json: bool) -> None:
    """Wait until a link has sent everything, even outside its windows. Exit code 1 after --timeout."""
    answer = _order("drain", link, state_dir, as_json=as_json, timeout_s=timeout_s)
    try:
        if not answer["drained"]:
            troubles = [f"; topic {topic}: {message}" for topic, message in answer["troubles"].items()]
            raise FailedError(
                f"{count_text(answer['backlog_records'], 'record')} left after {timeout_s or math.inf:g} s, the link "
                f"is {answer['state']}{''.join(troubles)}"
            )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FailedError(f"link {link} sent a response that this version does not know ({type(exc).__name__}: {exc})") from exc
    if not as_json:
        say(f"{link}: nothing is left")


@click.command
@click.option("--topic", required=True, metavar="NAME", help="Topic of the source.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Partition to reset.  [default: all]")
@position_option(
    *("-o", "--offset", "start"), also=("--start",), required=True, help=f"Continue at this position: {POSITION_HELP}."
)
@click.argument("link", required=False)
@json_option
@click.pass_context
def reset(ctx: click.Context, /, link: str | None, topic: str, partition: int | None, start: str, as_json: bool) -> None:
    """Reset the position of a stopped link in a topic.

    Write the options of the link before `reset`: triolog forward --config FILE reset LINK --topic NAME --offset start.
    """
    from ....protocol.errors import RequestError
    from ...forward.errors import ForwardError, SettingsError
    from ...forward.opening import reset as reset_link
    from ...forward.process.place import LinkPlace, default_state_dir
    from .options import open_source, settings_of

    options: dict[str, Any] = ctx.obj["options"]
    if options["config_file"] is None and not options["topics"] and not options["pattern"]:
        options = {**options, "topics": topic}
    try:
        settings = settings_of(options)
        names = [each.name for each in settings.links]
        if link is None and len(names) > 1:
            raise click.UsageError(f"several links. Choose one: {', '.join(names)}")
        chosen = next((each for each in settings.links if link in (None, each.name)), None)
        if chosen is None:
            raise click.UsageError(f"there is no link {link}. Links: {', '.join(names)}")
        place = read_position(start, LOCAL, "--offset")
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
        say(f"{each} continues at {offset}")
