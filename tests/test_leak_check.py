"""The leak check finds less plain leaks than those of `test_suite_rules.py`, and is quiet about what is no leak."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from tests.support import leaks


def test_a_descriptor_reopened_on_another_file_is_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.touch()
    fd = os.open(first, os.O_CREAT | os.O_RDWR)
    try:
        before = leaks.snapshot()
        other = os.open(second, os.O_RDWR)
        os.dup2(other, fd)
        os.close(other)
        assert leaks.leaks_since(before, grace_s=0) == [f"fd {fd} -> {second}"]
    finally:
        os.close(fd)


def test_a_descriptor_of_a_file_unlinked_meanwhile_is_the_same_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "unlinked"
    with path.open("wb"):
        before = leaks.snapshot()
        path.unlink()
        assert leaks.leaks_since(before, grace_s=0) == []


async def test_a_trio_worker_is_reported_while_it_works_and_not_when_it_is_idle() -> None:
    started, release = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait()

    before = leaks.snapshot()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        await trio.to_thread.run_sync(started.wait)
        try:
            [found] = leaks.leaks_since(before, grace_s=0)
        finally:
            release.set()
    assert found.startswith("thread ")
    assert leaks.leaks_since(before) == []


@pytest.mark.skipif(
    not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists(), reason="this kernel lists no children"
)
def test_a_child_process_is_reported_until_it_is_waited_for() -> None:
    before = leaks.snapshot()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = [line for line in leaks.leaks_since(before, grace_s=0) if line.startswith("child process")]
    finally:
        child.communicate(b"\n")
    assert [line.partition(":")[0] for line in found] == [f"child process {child.pid}"]
    assert leaks.leaks_since(before) == []
