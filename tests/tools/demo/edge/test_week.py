from __future__ import annotations

from itertools import pairwise

import pytest
from triolog.tools.demo.edge.week import (
    CANCELLATIONS,
    DELAYS,
    DEPARTURES,
    PARTITIONS,
    WEEK_MS,
    in_a_week,
    topic_config,
    topic_of,
)
from triolog.tools.demo.flights import find_source, load_flights

from tests.tools.demo.flight_rows import departing, flights_of

END_MS = 2_000_000_000_000


@pytest.mark.parametrize(
    ("delay", "topic"),
    [
        *(("-60", DEPARTURES), ("-5", DEPARTURES), ("0", DEPARTURES), ("59", DEPARTURES), ("60", DELAYS), ("853", DELAYS)),
        ("NA", CANCELLATIONS),
    ],
)
def test_a_flight_goes_to_the_topic_of_its_delay(delay: str, topic: str) -> None:
    (flight,) = flights_of({"dep_delay": delay, "dep_time": "NA" if delay == "NA" else "517"})
    assert topic_of(flight) == topic


def test_a_year_becomes_a_week_in_its_order() -> None:
    flights = load_flights(find_source(), 2000)
    week = in_a_week(flights, END_MS)
    times = [flight.timestamp for _, flight in week]
    assert (times[0], times[-1]) == (END_MS - WEEK_MS, END_MS)
    assert all(one <= other for one, other in pairwise(times))
    assert {flight.row for _, flight in week} == {flight.row for flight in flights}
    assert {topic for topic, _ in week} == PARTITIONS.keys()
    assert all(flight.partition < PARTITIONS[topic] for topic, flight in week)


def test_a_single_moment_is_no_division_by_zero_and_only_cancellations_are_refused() -> None:
    assert len(in_a_week([departing(1000, row=1), departing(1000, row=2)], END_MS)) == 2
    policies = {topic: topic_config(topic, "group")["disk.full.policy"] for topic in PARTITIONS}
    assert policies == {DEPARTURES: "drop-oldest", DELAYS: "drop-oldest", CANCELLATIONS: "refuse"}
