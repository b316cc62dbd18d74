"""A broker in memory with its schema registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import triolog
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support.registry_client import RegistryClient


@pytest.fixture
def extra() -> None:
    pytest.importorskip("avro", reason="the extra registry is not installed")


@pytest.fixture
def broker(extra: None) -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY) as broker:
        yield broker


@pytest.fixture
def registry(broker: BlockingBroker) -> RegistryClient:
    return RegistryClient(broker.schema_registry_url)
