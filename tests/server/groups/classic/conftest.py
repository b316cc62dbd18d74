"""What most tests of classic groups begin with."""

from __future__ import annotations

import pytest

from tests.support.group_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
