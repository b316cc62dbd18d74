"""How a demo ends, this one and Spark's: its exit codes, what kept it from its end in one line, what it found as JSON.

| exit code | means |
|---:|---|
| 0 | all checks held |
| 1 | one did not, or reading and writing failed before all of them were made |
| 2 | something is not installed, or the command line is wrong |
| 3 | the server did not start or did not stop |
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from .checks import Check

T = TypeVar("T")


class CheckFailedError(click.ClickException):
    """A check did not hold, or the story broke off before all of them were made."""

    exit_code = 1


class NotInstalledError(click.ClickException):
    """The flights, or what a demo works with, are not there."""

    exit_code = 2


class ServerUnusableError(click.ClickException):
    """The server did not start or did not stop."""

    exit_code = 3


@attrs.define(eq=False, repr=False)
class DemoFindings:
    """What one run of a demo found. Filled by its `run_story`."""

    checks: list[Check] = attrs.Factory(list)
    figures: dict[str, Any] = attrs.Factory(dict)

    @property
    def all_held(self) -> bool:
        """Whether every claim held; without any, nothing was shown."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def failed_count(self) -> int:
        """How many did not."""
        return sum(not check.ok for check in self.checks)

    def to_json(self, *, seed: int, **places: Path | None) -> str:
        """All of it, with the seed that it was found with, and where things are."""
        figures = {name: round(value, 3) if isinstance(value, float) else value for name, value in self.figures.items()}
        found = {
            "ok": self.all_held,
            "seed": seed,
            **figures,
            "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in self.checks],
            **{name: None if place is None else str(place) for name, place in places.items()},
        }
        return json.dumps(found, indent=2)

    def judge(self) -> None:
        """Raise CheckFailedError when a check did not hold."""
        if not self.all_held:
            raise CheckFailedError("; ".join(f"{check.name}: {check.detail}" for check in self.checks if not check.ok))


def find_flights() -> Path:
    """The installed flights. NotInstalledError."""
    from .flights import SourceMissingError, find_source

    try:
        return find_source()
    except SourceMissingError as exc:
        raise NotInstalledError(str(exc)) from exc


def check_empty(data_dir: Path | None) -> None:
    """Raise UsageError when the log would not be the only thing there."""
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise click.UsageError(f"--data-dir {data_dir} is not empty; the demo starts with an empty log")


def run(story: Callable[[], Awaitable[T]], *, failures: tuple[type[Exception], ...] = ()) -> T:
    """Run a story to its end. What breaks it off becomes one line and an exit code; `failures`: its own errors beside ours.

    Raises CheckFailedError, ServerUnusableError, KeyboardInterrupt.
    """
    import trio

    from ...protocol.errors import TriologError
    from .child import ServerFailedError

    try:
        return trio.run(story)
    except BaseException as exc:
        error = _first(exc)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from exc
        if isinstance(error, ServerFailedError):
            raise ServerUnusableError(str(error)) from exc
        if isinstance(error, (OSError, TriologError, *failures)):
            raise CheckFailedError(f"the demo cannot go on: {error}") from exc
        raise


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
