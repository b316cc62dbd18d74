"""What most tests of actors begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from triolog.server.broker import Broker

from tests.support.brokers import one_partition
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import Clock


@pytest.fixture
def fs() -> GateFileSystem:
    return GateFileSystem()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(tmp_path: Path, fs: GateFileSystem) -> AsyncIterator[Broker]:
    """With the topic TOPIC of one partition. It leaves no descriptor uncounted."""
    async with one_partition(tmp_path, fs=fs) as broker:
        yield broker
    assert fs.open_paths == []
