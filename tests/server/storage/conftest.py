"""What tests of several folders start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.logs import DrivenLog, open_driven


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[DrivenLog]:
    """An empty log in `tmp_path`."""
    driven = open_driven(tmp_path)
    yield driven
    driven.log.drop_maps()


@pytest.fixture
def state() -> ProducerState:
    return ProducerState()
