"""`triolog edge-demo` with everything that is in it, and its account of a partition."""

from __future__ import annotations

import json
import subprocess
import sys

import attrs
import pytest
from triolog.tools.demo.edge import CANCELLATIONS, DELAYS, DEPARTURES, WEEK_MS, Account, in_a_week

from .flight_rows import flights_of

FLIGHTS = flights_of({}, {"dep_delay": "60"}, {"dep_time": "NA", "dep_delay": "NA"}, {"month": "12"})


@pytest.mark.merge
@pytest.mark.timeout(600)
def test_a_week_without_an_uplink_adds_up() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "triolog.tools.cli", "edge-demo", "--json"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert (found["ok"], len(found["checks"])) == (True, 4)
    topics = found["topics"]
    assert sum(topic["written"] + topic["refused"] for topic in topics.values()) == 336_776
    assert all(topic["written"] == topic["forwarded"] + topic["told"] for topic in topics.values())
    assert topics[DEPARTURES]["told"] > 0
    assert topics[DELAYS]["written"] == topics[DELAYS]["forwarded"] > 20_000
    assert topics[CANCELLATIONS]["refused"] > 0
    assert found["forwarded_at_kill"] > 0


@pytest.mark.parametrize(
    ("arrived", "told", "adds_up"),
    [
        (FLIGHTS, set(), True),
        (FLIGHTS[1:], {0}, True),
        (FLIGHTS[1:], set(), False),
        (FLIGHTS, {0}, False),
        ([*FLIGHTS, FLIGHTS[0]], set(), False),
        (FLIGHTS[::-1], set(), False),
        ([FLIGHTS[0]._replace(value=b"{}"), *FLIGHTS[1:]], set(), False),
    ],
)
def test_a_record_that_is_lost_doubled_changed_or_in_another_order_does_not_add_up(
    arrived: list[object], told: set[int], adds_up: bool
) -> None:
    assert attrs.evolve(Account(FLIGHTS), arrived=arrived, told=told).adds_up == adds_up


def test_a_year_becomes_a_week_of_three_topics() -> None:
    week = in_a_week(FLIGHTS, WEEK_MS)
    assert [topic for topic, _ in week] == [CANCELLATIONS, DEPARTURES, DELAYS, DEPARTURES]
    assert (week[0][1].timestamp, week[-1][1].timestamp) == (0, WEEK_MS)
