"""SIGTERM ends a demo as Ctrl-C does: its processes, its mount and its files are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.tools.demo.showing import interrupted_by_sigterm, run

from tests.support.forwarding import until

INTERRUPTED: Final = 130


def command_lines(folder: Path) -> list[str]:
    """Those of the processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder) in line:
            found.append(line)
    return found


def test_a_story_cleans_up_after_sigterm_even_while_its_loop_waits_and_sigint_is_ignored() -> None:
    cleaned = []

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    async def story() -> None:
        try:
            await trio.to_thread.run_sync(terminate)
            await trio.sleep_forever()
        finally:
            cleaned.append("story")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
            run(story)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == (signal.SIG_IGN, before[1])
    finally:
        signal.signal(signal.SIGINT, before[0])
    assert cleaned == ["story"]


@pytest.mark.merge
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["edge-demo"], id="edge-demo"),
        pytest.param(["damage-demo"], id="damage-demo"),
        pytest.param(["demo", "--rows", "3000"], id="demo", marks=pytest.mark.long),
    ],
)
def test_sigterm_leaves_nothing_of_a_demo(tmp_path: Path, arguments: Sequence[str]) -> None:
    """It comes when a server has started, on its mount. `make` and its process group send it, so it comes twice."""
    command = [sys.executable, "-m", "triolog.tools.cli", *arguments]
    with (
        (tmp_path.parent / "output").open("w+b") as output,
        subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=output, stderr=output) as demo,
    ):
        try:
            until(
                lambda: demo.poll() is not None or any(" serve " in line for line in command_lines(tmp_path)),
                "the start of a server",
                patience_s=280,
            )
            for _ in range(2):
                demo.send_signal(signal.SIGTERM)
            demo.wait(200)
        finally:
            demo.kill()
        output.seek(0)
        assert demo.returncode == INTERRUPTED, output.read().decode()
    assert command_lines(tmp_path) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert list(tmp_path.iterdir()) == []
