"""Load generators run in processes of their own, so that the server has a core for itself.

A load is a function that takes keywords and returns what JSON can hold. `LoadProcess` runs one elsewhere:
`python -m triolog.tools.bench.measuring.child MODULE:FUNCTION JSON`; its answer is the last line it writes. One that goes on
until it is told to stop sees its standard input end.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

STARTED: Final = "started"


class LoadFailedError(Exception):
    """A process of the benchmark did not do what it was started for; the message says which and what it wrote."""


class LoadProcess:
    """A running load; leaving the block kills what still runs."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.name = f"{function.__module__.rpartition('.')[2]}:{function.__name__}"
        place = f"{function.__module__}:{function.__name__}"
        command = [sys.executable, "-m", __spec__.name, place, json.dumps(arguments)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_until_started(self) -> None:
        """Wait until the load says `started`, which those do that run until their input ends. Raises LoadFailedError."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != STARTED:
            raise LoadFailedError(f"{self.name} did not start: {self._process.communicate()[1].strip()[-2000:]}")

    def answer(self) -> Any:
        """End the load's input, wait for its end and return what the function returned. Raises LoadFailedError."""
        output, errors = self._process.communicate()
        if self._process.returncode:
            raise LoadFailedError(f"{self.name} ended with {self._process.returncode}: {errors.strip()[-2000:]}")
        return json.loads(output.splitlines()[-1])


def run_load(function: Callable[..., Any], **arguments: Any) -> Any:
    """Run a function in a process of its own; return its result."""
    with LoadProcess(function, arguments) as load:
        return load.answer()


def say_started() -> None:
    """Let `LoadProcess.wait_until_started` return."""
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()


def _main(name: str, arguments: str) -> None:
    module, _, function = name.partition(":")
    loaded = importlib.import_module(module)
    answer = getattr(loaded, function)(**json.loads(arguments))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
