"""Shared parts of all demos: their output, their checks and their exit codes.

| exit code | means |
|---:|---|
| 0 | all checks held |
| 1 | a check failed, or the demo broke off before all of them |
| 2 | something is not installed, or the command line is wrong |
| 3 | a process did not start or did not stop |
"""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import attrs
import click

from ...protocol.errors import TriologError
from ..cli.terminal.output import draw, say_parts, table
from .processes import ProcessFailedError

EXIT_FAILED: Final = 1
EXIT_NOT_INSTALLED: Final = 2
EXIT_SERVER: Final = 3


class DemoError(click.ClickException):
    """An error that ends a demo with one line and an exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # of the class in click, read from the error


class Check(NamedTuple):
    """A claim, whether it held, and the figures that decide it."""

    name: str
    ok: bool
    detail: str


@attrs.define(eq=False, repr=False)
class Demo:
    """The output, checks and figures of a run. Owner: its story. With `is_quiet` it prints only JSON, at the end."""

    is_quiet: bool
    checks: list[Check] = attrs.field(factory=list)
    figures: dict[str, Any] = attrs.field(factory=dict)

    def chapter(self, title: str) -> None:
        """Begin a part of the story."""
        self._say(("", {}))
        self._say((title, {"bold": True}))

    def say(self, text: str) -> None:
        """Print a line."""
        self._say((f"  {text}", {}))

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table; its first column is text, the others are numbers."""
        sides = {head: "right" if at else "left" for at, head in enumerate(heads)}
        self.draw(table(sides, rows))

    def draw(self, drawing: Any) -> None:
        """Print something of rich's."""
        if not self.is_quiet:
            draw(drawing)

    def check(self, name: str, ok: bool, detail: str) -> None:
        """Keep a claim, and print how it was judged."""
        self.checks.append(Check(name, ok, detail))
        verdict = ("    ok", {"fg": "green"}) if ok else ("FAILED", {"fg": "red", "bold": True})
        self._say(("  ", {}), verdict, (f"  {name}", {}), (f": {detail}", {"dim": True}))

    def end(self, *, seed: int, **places: Path | str | None) -> None:
        """Print the verdict, or everything as JSON. Raises DemoError when a check failed, or when nothing was checked."""
        failed = [check for check in self.checks if not check.ok]
        self.chapter(
            f"{len(failed)} of {len(self.checks)} checks FAILED." if failed else f"All {len(self.checks)} checks held."
        )
        if self.is_quiet:
            figures = {name: round(value, 3) if isinstance(value, float) else value for name, value in self.figures.items()}
            checks = [check._asdict() for check in self.checks]
            named = {name: None if place is None else str(place) for name, place in places.items()}
            ok = bool(checks) and not failed
            click.echo(json.dumps({"ok": ok, "seed": seed, **figures, "checks": checks, **named}, indent=2))
        if failed or not self.checks:
            raise DemoError("; ".join(f"{check.name}: {check.detail}" for check in failed))

    def _say(self, *parts: tuple[str, dict[str, Any]]) -> None:
        if not self.is_quiet:
            say_parts(*parts)


def check_empty(data_dir: Path | None) -> None:
    """Raise UsageError when the log would not be the only thing there."""
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise click.UsageError(f"--data-dir {data_dir} is not empty. The demo starts with an empty log")


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, with all its cleanup. A further SIGTERM is ignored: `make` passes on the one
    that its process group got.

    trio's own handler of SIGINT keeps KeyboardInterrupt out of trio's code. Another handler that raises it there breaks off the
    loop, and no task cleans up. trio installs its handler only where SIGINT is not ignored. A shell's background ignores it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.raise_signal(signal.SIGINT)

    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminations = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminations)
        signal.signal(signal.SIGINT, interrupts)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story to its end. Raises DemoError for what breaks it off, KeyboardInterrupt."""
    import trio

    try:
        trio.run(story)
    except BaseException as exc:
        error: BaseException = exc
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, (KeyboardInterrupt, DemoError)):
            raise error from None
        if isinstance(error, ProcessFailedError):
            raise DemoError(str(error), EXIT_SERVER) from exc
        if isinstance(error, (OSError, TriologError)):
            raise DemoError(f"the demo cannot continue: {error}") from exc
        raise
