"""What the demo claims, judged on accounts that are wrong."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from triolog.protocol.types import TopicPartition
from triolog.tools.demo.edge.accounts import Account
from triolog.tools.demo.edge.story import judge
from triolog.tools.demo.edge.week import CANCELLATIONS, DELAYS, DEPARTURES
from triolog.tools.demo.showing import Demo

ROWS = [b"%d" % row for row in range(10)]
DEPARTED = Account(
    place=TopicPartition(DEPARTURES, 2), written=ROWS, arrived=[*ROWS[2:5], *ROWS[7:]], told=[(0, 1), (5, 6)], dropped=4
)
DELAYED = Account(place=TopicPartition(DELAYS, 0), written=ROWS, arrived=ROWS)
CANCELLED = Account(place=TopicPartition(CANCELLATIONS, 0), written=ROWS[:6], refused=4, arrived=ROWS[:6])
ALL = [DEPARTED, DELAYED, CANCELLED]
ADDS_UP, ORDER, EQUAL, GAVE_WAY = range(4)
"""The claims of `judge`, in their order."""


def judged(accounts: Sequence[Account], differing: Sequence[str] = ()) -> tuple[Demo, set[int]]:
    """The demo, and which claims failed."""
    demo = Demo(is_quiet=True)
    judge(demo, accounts, differing)
    return demo, {number for number, check in enumerate(demo.checks) if not check.ok}


def test_everything_adds_up_and_without_anything_nothing_was_shown() -> None:
    other = attrs.evolve(DEPARTED, place=TopicPartition(DEPARTURES, 0))
    demo, failed = judged([*ALL, other])
    assert failed == set()
    assert demo.checks[ADDS_UP].detail == "36 = 28 + 8"
    assert demo.figures["topics"][DEPARTURES] == {
        "written": 20, "refused": 0, "forwarded": 12, "dropped": 8, "told": 8, "duplicates": 0, "adds_up": True
    }  # fmt: skip
    assert {ADDS_UP, EQUAL, GAVE_WAY} <= judged([])[1]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"arrived": DEPARTED.arrived[1:]}, id="one is missing at the start"),
        pytest.param({"arrived": DEPARTED.arrived[:-1]}, id="one is missing at the end"),
        pytest.param({"arrived": [*DEPARTED.arrived, ROWS[9]]}, id="one came twice"),
        pytest.param({"arrived": [*DEPARTED.arrived, b"99"]}, id="one that nobody wrote"),
        pytest.param({"arrived": [ROWS[0], *DEPARTED.arrived[1:]]}, id="one that was dropped came instead of another"),
        pytest.param({"dropped": 3}, id="the server counted less"),
        pytest.param({"dropped": 5}, id="the server counted more"),
        pytest.param({"told": [(0, 1)]}, id="a gap was not told"),
        pytest.param({"told": [(0, 1), (5, 7)]}, id="more was told than is missing"),
        pytest.param({"told": [(0, 1), (5, 6), (5, 6)]}, id="a gap was told twice"),
        pytest.param({"misplaced": 1}, id="acknowledged at another offset"),
    ],
)
def test_one_that_is_wrong_is_found(wrong: dict[str, object]) -> None:
    demo, failed = judged([attrs.evolve(DEPARTED, **wrong), DELAYED, CANCELLED])
    assert failed == {ADDS_UP}
    assert demo.checks[ADDS_UP].detail.startswith(f"{DEPARTURES}-2: ")
    assert not demo.figures["topics"][DEPARTURES]["adds_up"]


def test_another_order_or_a_record_that_differs_is_found_and_a_duplicate_is_no_other_order() -> None:
    assert ORDER not in judged([DEPARTED, attrs.evolve(DELAYED, arrived=[*ROWS, ROWS[0]]), CANCELLED])[1]
    assert judged([DEPARTED, attrs.evolve(DELAYED, arrived=[ROWS[1], ROWS[0], *ROWS[2:]]), CANCELLED])[1] == {ORDER}
    demo, failed = judged(ALL, ["offset 3 upstream: key"])
    assert (failed, demo.checks[EQUAL].detail) == ({EQUAL}, "1 of 22 differ; offset 3 upstream: key")


@pytest.mark.parametrize(
    "accounts",
    [
        [attrs.evolve(DEPARTED, dropped=0, written=DEPARTED.arrived, told=()), DELAYED, CANCELLED],
        [DEPARTED, attrs.evolve(DELAYED, dropped=1, arrived=ROWS[1:], told=[(0, 0)]), CANCELLED],
        [DEPARTED, DELAYED, attrs.evolve(CANCELLED, dropped=1, arrived=ROWS[1:6], told=[(0, 0)])],
        [DEPARTED, DELAYED, attrs.evolve(CANCELLED, refused=0)],
        [DEPARTED, attrs.evolve(DELAYED, refused=1), CANCELLED],
    ],
)
def test_a_topic_that_got_what_it_was_not_to_get_is_found(accounts: Sequence[Account]) -> None:
    assert judged(accounts)[1] == {GAVE_WAY}
