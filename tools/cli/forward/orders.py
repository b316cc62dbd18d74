"""`triolog forward pause`, `resume`, `drain`: what links that run are told."""

from __future__ import annotations

import math
from typing import Any

import click

from ..terminal.failures import FailedError
from ..terminal.output import count_text, json_option, print_json, say
from .asking import ask_link, state_dir_option


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
    """Let a link send nothing, over restarts too, until it is resumed."""
    if _order("pause", link, state_dir, as_json=as_json) and not as_json:
        say(f"{link} is paused")


@click.command
@click.argument("link")
@state_dir_option
@json_option
def resume(link: str, state_dir: str | None, as_json: bool) -> None:
    """Let a link that is paused go on."""
    if _order("resume", link, state_dir, as_json=as_json) and not as_json:
        say(f"{link} goes on")


@click.command
@click.argument("link")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), help="Seconds; by default as long as it takes."
)
@state_dir_option
@json_option
def drain(link: str, timeout_s: float | None, state_dir: str | None, as_json: bool) -> None:
    """Wait until nothing is left, whatever the link's windows say; exit code 1 when the time is up before."""
    answer = _order("drain", link, state_dir, as_json=as_json, timeout_s=timeout_s)
    try:
        if not answer["drained"]:
            troubles = [f"; topic {topic}: {message}" for topic, message in answer["troubles"].items()]
            raise FailedError(
                f"{count_text(answer['backlog_records'], 'record')} left after {timeout_s or math.inf:g} s, "
                f"the link is {answer['state']}{''.join(troubles)}"
            )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FailedError(f"link {link} answers with what this version does not know ({type(exc).__name__}: {exc})") from exc
    if not as_json:
        say(f"{link}: nothing is left")
