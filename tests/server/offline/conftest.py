"""A stopped log directory, written once for all tests that copy it."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest

from tests.support.stopped_logs import StoppedLogs, write_stopped_logs


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> StoppedLogs:
    """Nobody changes it."""
    return write_stopped_logs(tmp_path_factory.mktemp("written") / "data", partitions=2)


@pytest.fixture
def logs(written: StoppedLogs, fast_path: Path) -> StoppedLogs:
    """A directory of the test's own."""
    return attrs.evolve(written, path=Path(shutil.copytree(written.path, fast_path / "data")))
