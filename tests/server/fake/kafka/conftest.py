"""Servers that are looked on."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.server.fake.faults.faults import Faults
from triolog.server.fake.faults.requests import RequestLog
from triolog.server.fake.kafka.watched import Watch

from tests.server.listeners.kafka.conftest import client as client
from tests.server.listeners.kafka.conftest import kafka as kafka
from tests.server.listeners.kafka.conftest import member as member
from tests.support.logs import START_MS


@pytest.fixture
def watch() -> Watch:
    return Watch(Faults(), RequestLog(), lambda: START_MS)


@pytest.fixture
def settings(watch: Watch) -> dict[str, Any]:
    return {"watch": watch}
