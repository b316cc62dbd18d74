from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from triolog.protocol.types import TopicPartition
from triolog.tools.demo.checks import Check
from triolog.tools.demo.edge import accounts as claims
from triolog.tools.demo.edge.accounts import Account, by_topic
from triolog.tools.demo.edge.week import CANCELLATIONS, DELAYS, DEPARTURES

ROWS = [b"%d" % row for row in range(10)]
DEPARTED = Account(
    place=TopicPartition(DEPARTURES, 2), written=ROWS, arrived=[*ROWS[2:5], *ROWS[7:]], told=[(0, 1), (5, 6)], dropped=4
)
DELAYED = Account(place=TopicPartition(DELAYS, 0), written=ROWS, arrived=ROWS)
CANCELLED = Account(place=TopicPartition(CANCELLATIONS, 0), written=ROWS[:6], refused=4, arrived=ROWS[:6])
ALL = [DEPARTED, DELAYED, CANCELLED]


def test_everything_adds_up_and_without_anything_nothing_was_shown() -> None:
    check = claims.everything_adds_up(ALL)
    assert (check.ok, check.detail) == (True, "26 = 22 + 4")
    assert claims.order_is_kept(ALL).ok
    assert claims.bytes_are_equal(ALL).ok
    assert claims.what_matters_is_complete(ALL).ok
    for judge in (claims.everything_adds_up, claims.order_is_kept, claims.bytes_are_equal, claims.what_matters_is_complete):
        assert not judge([]).ok


def test_a_line_has_the_sums_of_its_partitions() -> None:
    other = attrs.evolve(DEPARTED, place=TopicPartition(DEPARTURES, 0), refused=1)
    line = by_topic([*ALL, other])[0]
    assert line.as_json() == {
        "written": 20, "refused": 1, "forwarded": 12, "dropped": 8, "told": 8, "duplicates": 0, "adds_up": True
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"arrived": DEPARTED.arrived[1:]}, id="one is missing at the start"),
        pytest.param({"arrived": DEPARTED.arrived[:-1]}, id="one is missing at the end"),
        pytest.param({"arrived": [*DEPARTED.arrived, ROWS[3]]}, id="one came twice"),
        pytest.param({"arrived": [*DEPARTED.arrived, b"99"]}, id="one that nobody wrote"),
        pytest.param({"arrived": [*DEPARTED.arrived[1:], ROWS[0]]}, id="one that was dropped came instead of another"),
        pytest.param({"dropped": 3}, id="the server counted less"),
        pytest.param({"dropped": 5}, id="the server counted more"),
        pytest.param({"told": [(0, 1)]}, id="a gap was not told"),
        pytest.param({"told": [(0, 1), (5, 7)]}, id="more was told than is missing"),
        pytest.param({"told": [(0, 1), (5, 6), (5, 6)]}, id="a gap was told twice"),
        pytest.param({"misplaced": 1}, id="acknowledged at another offset"),
    ],
)
def test_one_that_is_wrong_is_found(wrong: dict[str, object]) -> None:
    account = attrs.evolve(DEPARTED, **wrong)
    check = claims.everything_adds_up([account, DELAYED, CANCELLED])
    assert not check.ok
    assert check.detail.startswith(f"{DEPARTURES}-2: ")
    assert not by_topic([account])[0].adds_up


def test_another_order_or_a_record_that_differs_is_found_and_a_duplicate_is_none() -> None:
    assert claims.order_is_kept([attrs.evolve(DELAYED, arrived=[*ROWS, ROWS[0]])]).ok
    swapped = [ROWS[1], ROWS[0], *ROWS[2:]]
    assert not claims.order_is_kept([attrs.evolve(DELAYED, arrived=swapped)]).ok
    check = claims.bytes_are_equal([DEPARTED, attrs.evolve(DELAYED, differing=1, first_difference="at offset 3 upstream: key")])
    assert (check.ok, check.detail) == (False, "1 of 16 differ; delays-0 at offset 3 upstream: key")


@pytest.mark.parametrize(
    "accounts",
    [
        [attrs.evolve(DEPARTED, dropped=0), DELAYED, CANCELLED],
        [DEPARTED, attrs.evolve(DELAYED, dropped=1), CANCELLED],
        [DEPARTED, DELAYED, attrs.evolve(CANCELLED, dropped=1)],
        [DEPARTED, DELAYED, attrs.evolve(CANCELLED, refused=0)],
        [DEPARTED, attrs.evolve(DELAYED, refused=1), CANCELLED],
    ],
)
def test_a_topic_that_got_what_it_was_not_to_get_is_found(accounts: Sequence[Account]) -> None:
    assert not claims.what_matters_is_complete(accounts).ok


@pytest.mark.parametrize(
    ("check", "ok"),
    [
        (claims.more_was_written_than_fits(101, 100), True),
        (claims.more_was_written_than_fits(100, 100), False),
        (claims.no_producer_met_a_full_disk({}), True),
        (claims.no_producer_met_a_full_disk({"POLICY_VIOLATION": 3, "RECORD_LIST_TOO_LARGE": 1}), True),
        (claims.no_producer_met_a_full_disk({"KAFKA_STORAGE_ERROR": 1}), False),
        (claims.killed_while_forwarding({"server": -9, "forwarder": -9}, 5, 10), True),
        (claims.killed_while_forwarding({"server": -9, "forwarder": 0}, 5, 10), False),
        (claims.killed_while_forwarding({"server": -9, "forwarder": -9}, 0, 10), False),
        (claims.killed_while_forwarding({"server": -9, "forwarder": -9}, 10, 10), False),
    ],
)
def test_the_story_is_what_it_says(check: Check, ok: bool) -> None:
    assert check.ok is ok
