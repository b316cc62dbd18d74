"""What tests of several folders start from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.logs import DrivenLog, open_driven
from tests.support.stopped_logs import StoppedLogs, write_stopped_logs


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> StoppedLogs:
    """Nobody changes it."""
    return write_stopped_logs(tmp_path_factory.mktemp("written") / "data", partitions=2)


@pytest.fixture
def logs(written: StoppedLogs, fast_path: Path) -> StoppedLogs:
    """A directory of the test's own."""
    return attrs.evolve(written, path=Path(shutil.copytree(written.path, fast_path / "data")))


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[DrivenLog]:
    """An empty log in `tmp_path`."""
    driven = open_driven(tmp_path)
    yield driven
    driven.log.drop_maps()


@pytest.fixture
def state() -> ProducerState:
    return ProducerState()
