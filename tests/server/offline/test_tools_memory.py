"""The tools need little memory whatever the size of the log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition

from tests.support.counts import counts
from tests.support.logs import START_MS, open_driven

MEASURED: Final = """
import sys
from triolog.tools.cli.main import main
main(sys.argv[1:], standalone_mode=False)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(int(peak) // 1024, file=sys.stderr)
"""
"""`ru_maxrss` would count what the process was forked from."""
MOST_MIB: Final = 64


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 640 MiB in one segment (64 in the commit tier): more than the tools may use."""
    path = tmp_path_factory.mktemp("large") / "large-0"
    driven = open_driven(path, topic_partition=TopicPartition("large", 0))
    records = build_batch([(START_MS + number, None, os.urandom(1024), ()) for number in range(64)])
    for _ in range(counts(10)):
        driven.append_group([driven.prepare(records) for _ in range(1000)])
    driven.close()
    return path


@pytest.mark.parametrize("command", [("verify",), ("reindex",), ("export",), ("repair", "--dry-run")])
def test_memory_stays_below_64_mib(directory: Path, command: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, *command, str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stderr.split()[-1]) <= MOST_MIB
