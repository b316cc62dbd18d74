"""The job as a child process: what it says while it runs, and its end by SIGKILL at a chosen batch.

A kill ends Python and the JVM together: both are in a process group of their own. Spark's Python workers are in others and
end by themselves when their JVM is gone, so for a moment they may outlive the job that starts next: what they still write
must not count.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ...demo.showing import DemoError
from .job import Settings

LOG_TAIL_LINES: Final = 15
LINE_BYTES: Final = 1 << 16
"""The job's lines have some hundred bytes."""
TIMEOUT_S: Final = 900.0
"""For one process of the job."""


@attrs.frozen
class KillPoint:
    """Kill when this batch of this part is over, and a share of the time that it took after that: in the next one."""

    part: str
    batch: int
    share: float


@attrs.frozen(kw_only=True)
class Run:
    """A process of the job, from its start to its end."""

    lines: Sequence[dict[str, Any]]
    """What it said."""
    exit_status: int
    killed: KillPoint | None = None


async def run_job(
    settings: Settings, kills: Sequence[KillPoint], log_file: Path, tell: Callable[[dict[str, Any]], None]
) -> list[Run]:
    """Run the job, kill it at each of these points and start it again, until it ends by itself. DemoError."""
    runs = [await _run_once(settings, kill, log_file, tell) for kill in kills]
    runs.append(await _run_once(settings, None, log_file, tell))
    return runs


async def _run_once(settings: Settings, kill: KillPoint | None, log_file: Path, tell: Callable[[dict[str, Any]], None]) -> Run:
    command = [sys.executable, "-m", "triolog.tools.spark.demo.job", json.dumps(attrs.asdict(settings))]
    lines: list[dict[str, Any]] = []
    with log_file.open("ab") as log:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    was_killed = False
    try:
        with trio.move_on_after(TIMEOUT_S) as scope:
            async for line in _lines(process):
                lines.append(line)
                tell(line)
                if kill is not None and line["part"] == kill.part and line.get("batch", -1) >= kill.batch:
                    await trio.sleep(kill.share * line["seconds"])
                    was_killed = True
                    break
            if not was_killed:
                await process.wait()
        if scope.cancelled_caught:
            raise DemoError(f"the job did not end within {TIMEOUT_S:.0f} s; {_tail(log_file)}")
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)
    status = process.returncode
    assert status is not None
    if not was_killed and status:
        raise DemoError(f"the job ended with {status}; {_tail(log_file)}")
    if kill is not None and not was_killed:
        raise DemoError(f"the job ended before batch {kill.batch} of {kill.part}, where the demo kills it")
    return Run(lines=lines, exit_status=status, killed=kill)


async def _end(process: trio.Process) -> None:
    """Kill the rest of it with SIGKILL."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()


async def _lines(process: trio.Process) -> Any:
    """Yield the job's lines; skip those of other programs that share its output."""
    assert process.stdout is not None
    rest = b""
    async for data in process.stdout:
        *complete, rest = (rest + data).split(b"\n")
        assert len(rest) <= LINE_BYTES, "the job writes a line without end"
        for line in complete:
            if line.startswith(b"{"):
                yield json.loads(line)


def _tail(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").splitlines()
    return f"its log {log_file} ends with\n" + "\n".join(lines[-LOG_TAIL_LINES:])
