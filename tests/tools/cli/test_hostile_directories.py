"""Directories that somebody filled with what is no file of a log: every command ends soon, with lines for people."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from triolog.server.storage.disk.filesystem import OsFileSystem, replace_file

from tests.support.brokers import running_broker
from tests.support.stopped_logs import StoppedLogs

from .conftest import call

COMMANDS: Final = (
    "verify {0}",
    "verify {0} --json",
    "repair {0} --dry-run",
    "du {0}",
    "gaps list --data-dir {0}",
    "export {0}",
    "export {0} --target {1}/files",
    "dump {0}",
    "backup {0} {1}/backup",
    "export-kafka {0} {1}/kafka",
    "reindex {0}",
    "compact {0} --topic flights --force",
    "repair {0}",
)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    os.truncate(path, 2**40)


HOSTILE: Final[dict[str, Callable[[Path], None]]] = {
    "pipes": _pipe,
    "directories": _directory,
    "links to themselves": _circle,
    "links to a device": _device,
    "sparse files": _sparse,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_commands_end_with_a_line_whatever_is_in_place_of_files(kind: str, logs: StoppedLogs, tmp_path: Path) -> None:
    """Of each kind of file one is replaced; `call` raises what would be a traceback."""
    logs.path.joinpath("cleaner-offset-checkpoint").touch()
    for name in (
        "topics.json",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".kafka_cleanshutdown",
    ):
        HOSTILE[kind](logs.path / name)
    for path in sorted(logs.partition(1).iterdir()):
        HOSTILE[kind](path)
    for command in COMMANDS:
        result = call(*command.format(logs.path, tmp_path).split())
        assert result.output.strip(), command
        assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_server_says_what_is_no_file_and_serves_the_rest(kind: str, logs: StoppedLogs) -> None:
    for path in sorted(logs.partition(1).iterdir()):
        HOSTILE[kind](path)
    async with running_broker(logs.path) as broker:
        good, bad = broker.topics.describe("flights").partitions
        assert good.error is None
        assert good.high_watermark > 0
        assert bad.error is not None or bad.high_watermark == 0


@pytest.mark.parametrize("victim", ["file", "pipe", "nothing"])
def test_temporary_files_are_not_written_through_links(victim: str, tmp_path: Path) -> None:
    target = tmp_path / "victim"
    if victim == "file":
        target.write_bytes(b"precious")
    elif victim == "pipe":
        os.mkfifo(target)
    (tmp_path / "small.tmp").symlink_to(target)
    replace_file(OsFileSystem(), str(tmp_path / "small"), b"data")
    assert (tmp_path / "small").read_bytes() == b"data"
    assert not (tmp_path / "small").is_symlink()
    assert victim != "file" or target.read_bytes() == b"precious"
    assert victim != "nothing" or not target.exists()


def test_a_new_file_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        OsFileSystem().open(str(tmp_path / "new"), os.O_RDWR | os.O_CREAT)
    assert not (tmp_path / "elsewhere").exists()
