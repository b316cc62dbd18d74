"""Servers that are looked on."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.server.faults.faults import Faults
from triolog.server.faults.requests import RequestLog
from triolog.server.listeners.kafka.fake.watched import Watch

from tests.support.logs import START_MS


@pytest.fixture
def watch() -> Watch:
    return Watch(Faults(), RequestLog(), lambda: START_MS)


@pytest.fixture
def settings(watch: Watch) -> dict[str, Any]:
    return {"watch": watch}
