"""A write-back that fails in a real kernel, on a real ext4: a restart does not forget it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.failing_device import run_alone


def test_what_a_device_refused_before_a_restart_is_on_it_before_it_is_served(tmp_path: Path) -> None:
    if reason := run_alone("tests.server.failing_device_story", tmp_path):
        pytest.skip(reason)
