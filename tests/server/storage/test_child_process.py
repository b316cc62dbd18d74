"""Processes that work for a server: they end with it, and say nothing about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

MODULES: Final = ("storage.cleaner", "offline.scrub")
ORDER: Final = json.dumps({"max_bytes_per_second": 0}).encode() + b"\n"
SEGMENT: Final = json.dumps({"path": "/nowhere", "size": 1, "base_offset": 0, "end_offset": 1}).encode() + b"\n"


def run(module: str, sent: bytes, *, is_heard: bool = True) -> tuple[int, str]:
    """Exit status and standard error of a process to which a server has sent so much before it was gone."""
    command = [sys.executable, "-P", "-m", f"triolog.server.{module}", str(os.getpid()), "owner"]
    reading, writing = os.pipe()
    if not is_heard:
        os.close(reading)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        child = subprocess.run(
            command, input=sent, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60, env=variables
        )
    finally:
        os.close(writing)
        if is_heard:
            os.close(reading)
    return child.returncode, child.stderr.decode()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("sent", [b"", b'{"max_bytes'], ids=["nothing", "half a line"])
def test_a_process_whose_server_is_gone_before_it_said_what_to_do_ends_without_a_word(module: str, sent: bytes) -> None:
    assert run(module, sent) == (1, "")


def test_a_process_that_has_an_answer_for_nobody_ends_without_a_word(tmp_path: Path) -> None:
    assert run("offline.scrub", ORDER + SEGMENT, is_heard=False) == (1, "")


def test_a_process_whose_server_stopped_between_two_orders_has_done_its_work() -> None:
    assert run("offline.scrub", ORDER + SEGMENT) == (0, "")


def test_a_process_that_meets_a_bug_says_where() -> None:
    status, said = run("offline.scrub", b"{}\n")
    assert status == 1
    assert "Traceback" in said
    assert "max_bytes_per_second" in said
