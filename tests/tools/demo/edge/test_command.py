"""`triolog edge-demo` with everything that is in it: a small disk, a slow link, kills. `test_accounts.py` has its checks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from triolog.tools.demo.edge.week import CANCELLATIONS, DELAYS, DEPARTURES


@pytest.mark.merge
@pytest.mark.timeout(300)
def test_a_week_without_an_uplink_adds_up() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "triolog.tools.cli", "edge-demo", "--json"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["ok"]
    assert len(found["checks"]) == 7
    topics = found["topics"]
    assert sum(topic["written"] + topic["refused"] for topic in topics.values()) == 336_776
    assert all(topic["written"] == topic["forwarded"] + topic["dropped"] for topic in topics.values())
    assert topics[DEPARTURES]["dropped"] == topics[DEPARTURES]["told"] > 0
    assert topics[DELAYS]["written"] == topics[DELAYS]["forwarded"] > 20_000
    assert topics[CANCELLATIONS]["refused"] > 0
    assert found["refused_connections"] > 0
    assert found["forwarded_at_kill"] > 0
