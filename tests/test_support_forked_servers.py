"""The program whose forks stand for the command has loaded what a server loads, and takes its forks along."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Final

from tests.support.descriptor_limits import TELLS_IMPORTS, imports_of
from tests.support.forked_servers import PROGRAM, ServerForker
from tests.support.server_process import DEADLINE_S, ServerFolder, environment, python_command

PRELOADS: Final = f"import sys; sys.path.append({str(PROGRAM.parent)!r}); import server_forker; server_forker.preload()"


def test_the_program_has_loaded_every_module_of_ours_that_a_server_loads(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=python_command(f"{PRELOADS}\n{TELLS_IMPORTS}")) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0", "--nodes", "2", "--emulate", "3.4")
        assert server.stop() == 0, server.stderr()
    assert [name for name in imports_of(tmp_path) if name.startswith("triolog.")] == []


def test_forks_do_not_outlive_the_program(tmp_path: Path) -> None:
    poll = select.poll()
    with ServerForker.running(environment()) as forker:
        arguments = ("serve", "--data-dir", "data", "--native", "127.0.0.1:0")
        server = forker.fork(arguments, cwd=tmp_path, environment=environment(), output=tmp_path / "output")
        poll.register(server._pidfd, select.POLLIN)
        assert not poll.poll(0), "it serves"
    assert poll.poll(DEADLINE_S * 1000)
    os.close(server._pidfd)
