from __future__ import annotations

import os
from pathlib import Path

import pytest
from triolog.tools.demo.processes import ProcessFailedError, started_server


def test_leaving_the_block_by_an_exception_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the caller's environment that the server would refuse does not reach it."""
    monkeypatch.setenv("TRIOLOG_NO_SUCH_KEY", "1")
    pids: list[int] = []

    def fail() -> None:
        with started_server(tmp_path / "data", tmp_path) as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_server_that_cannot_start_is_reported_with_its_words(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.write_text("not a directory")
    with pytest.raises(ProcessFailedError, match=f"(?s)the server ended with 2 .*; its log ends with.*{data_dir}"):
        with started_server(data_dir, tmp_path):
            raise AssertionError("it cannot have started")
