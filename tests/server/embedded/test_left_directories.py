"""Directories that go with their broker: those of killed processes are removed by the next one, others are left alone."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.embedded import MEMORY, open_broker
from triolog.server.embedded import living as embedded_living
from triolog.server.partitions.faulty_disk import FaultyFileSystem

KILLED = """
import os, signal
from triolog.server.embedded import BlockingBroker
broker = BlockingBroker(native=None, topics=["t"]).start()
broker.append("t", [b"x"])
print(broker.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where directories go; they need not be old to be removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(embedded_living, "YOUNG_S", -1.0)
    embedded_living.remove_left.cache_clear()
    yield tmp_path
    embedded_living.remove_left.cache_clear()


async def test_what_a_killed_process_has_left_is_removed_by_the_next_broker(parent: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(parent)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    data = Path(killed.stdout.strip())
    left = data.parent
    assert left.parent == parent
    assert (data / "t-0").is_dir()
    async with open_broker(native=None) as broker:
        assert not left.exists()
        assert Path(broker.path).parent.parent == parent
    assert list(parent.iterdir()) == []


async def test_what_is_in_use_or_not_ours_is_left_alone(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used, older, young = parent / "triolog-run-used", parent / "triolog-x1", parent / "triolog-run-young"
    for each in (used, older, young):
        each.mkdir()
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (parent / "triolog-run-link").symlink_to(older)
    async with open_broker(native=None):
        assert {each.name for each in parent.iterdir()} >= {used.name, older.name, "triolog-run-link"}
        assert not young.exists()
    os.close(lock)
    young.mkdir()
    monkeypatch.setattr(embedded_living, "YOUNG_S", 60.0)
    embedded_living.remove_left.cache_clear()
    async with open_broker(native=None):
        assert young.exists(), "it may be locked in a moment"
    shutil.rmtree(young)


async def test_memory_that_is_full_is_named_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was told to try again would say that its messages have timed out."""
    async with open_broker(MEMORY, native=None, topics=["t"]) as broker:
        if not broker.core.disk.fs.is_instant:
            pytest.skip("no memory for files here")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(FaultyFileSystem, "write", full)
            with pytest.raises(RequestError, match=r"No space left on device.*memory for files is full.*--shm-size") as caught:
                await broker.append("t", [b"x"])
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        assert (await broker.append("t", [b"x"])).base_offset == 0
