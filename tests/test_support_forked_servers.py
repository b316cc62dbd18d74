"""Forked servers are processes like those of the command: their own arguments, variables, folder, output, exit code and end."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.descriptor_limits import TELLS_IMPORTS, imports_of
from tests.support.forked_servers import PROGRAM, ForkedProcess, ServerForker
from tests.support.server_process import DEADLINE_S, ServerFolder, environment, python_command
from tests.support.wire_client import WireClient

PRELOADS: Final = f"import sys; sys.path.append({str(PROGRAM.parent)!r}); import server_forker; server_forker.preload()"


def forked(forker: ServerForker, folder: Path, *arguments: str, **variables: str) -> tuple[ForkedProcess, Path]:
    output = folder / "output"
    output.write_bytes(b"")
    return forker.fork(arguments, cwd=folder, environment=environment(variables), output=output), output


def test_a_fork_ends_with_the_exit_code_and_the_output_of_the_command(tmp_path: Path, server_forker: ServerForker) -> None:
    process, output = forked(server_forker, tmp_path, "serve")
    assert process.wait(DEADLINE_S) == process.poll() == 2
    assert "say where the data is" in output.read_text()
    process.kill()
    process, output = forked(server_forker, tmp_path, "--version")
    assert process.wait(DEADLINE_S) == 0
    assert output.read_text().startswith("triolog ")


def test_a_fork_has_the_folder_and_the_variables_it_was_given(tmp_path: Path, server_forker: ServerForker) -> None:
    process, output = forked(server_forker, tmp_path, "serve", "--data-dir", "here", TRIOLOG_DURABILITY="sometimes")
    assert process.wait(DEADLINE_S) == 2
    assert "sometimes" in output.read_text()
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("relative",)) as folder:
        server = folder.start()
        assert os.readlink(f"/proc/{server.pid}/cwd") == str(tmp_path)
        with WireClient.connect(server.address) as client:
            client.create_topic("t")
        assert server.stop() == 0
    assert (tmp_path / "relative" / "t-0").is_dir()


def test_forks_of_one_program_are_told_apart_and_killed_one_by_one(tmp_path: Path, server_forker: ServerForker) -> None:
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("a",)) as one:
        first = one.start()
        other = one.spawn()
        assert other.wait_exit() == 3, "the directory is locked"
        with pytest.raises(subprocess.TimeoutExpired):
            first.process.wait(0.01)
        assert first.process.poll() is None
        first.kill()
        assert first.process.returncode == -9
        assert one.start().stop() == 0, "locks are free when the kill is over"


def test_the_program_has_loaded_every_module_of_ours_that_a_server_loads(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=python_command(f"{PRELOADS}\n{TELLS_IMPORTS}")) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0", "--nodes", "2", "--emulate", "3.4")
        assert server.stop() == 0, server.stderr()
    assert [name for name in imports_of(tmp_path) if name.startswith("triolog.")] == []


def test_forks_do_not_outlive_the_program(tmp_path: Path) -> None:
    poll = select.poll()
    with ServerForker.running(environment()) as forker:
        server, _ = forked(forker, tmp_path, "serve", "--data-dir", "data", "--native", "127.0.0.1:0")
        poll.register(server._pidfd, select.POLLIN)
        assert not poll.poll(0), "it serves"
    assert poll.poll(DEADLINE_S * 1000)
    os.close(server._pidfd)
