"""A real broker in its own thread, and the `triolog` command called against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import triolog
from click.testing import CliRunner, Result
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.main import main

from tests.support.descriptor_limits import process_as_it_was
from tests.support.stopped_logs import StoppedLogs, write_stopped_logs

from ..client.conftest import door

__all__ = ["door"]

RETENTION_OFF = {"retention.ms": "-1"}


def call(*arguments: object, **how: Any) -> Result:
    """The outcome of `triolog ARGUMENTS`; an exception that is not an exit is raised. `how` as for `CliRunner.invoke`."""
    with process_as_it_was():
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], **how)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def json_lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in call(*arguments).stdout.splitlines()]


@attrs.frozen
class Cli:
    """Calls commands with a server's address in the environment."""

    broker: BlockingBroker

    @property
    def address(self) -> str:
        return str(self.broker.native)

    def call(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        return call(*arguments, input=stdin, env={"TRIOLOG_SERVER": self.address})

    def ok(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """Standard output of a call that must succeed without a word on standard error."""
        result = self.call(*arguments, stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        """The JSON document that a call prints with --json."""
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments).splitlines()]

    def process(self, *arguments: str, **how: Any) -> subprocess.Popen[bytes]:
        """A process of the command, whose streams are pipes unless `how` says otherwise."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-m", "triolog.tools.cli", *arguments]
        return subprocess.Popen(command, **{**pipes, "env": {**os.environ, "TRIOLOG_SERVER": self.address}, **how})

    def refused(self, *arguments: str, stdin: str | bytes | None = None, code: int = 1) -> str:
        """The one line on standard error of a call that must fail; for a wrong command line the last of its lines."""
        result = self.call(*arguments, stdin=stdin)
        assert result.exit_code == code, result.output
        lines = result.stderr.splitlines()
        assert code == 2 or len(lines) == 1, result.stderr
        assert lines[-1].startswith("Error: ")
        return lines[-1]


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(config=RETENTION_OFF, native="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def cli(broker: BlockingBroker) -> Cli:
    return Cli(broker)


@pytest.fixture
def logs(tmp_path: Path) -> StoppedLogs:
    """A stopped directory of one topic with two partitions."""
    return write_stopped_logs(tmp_path / "data", partitions=2)
