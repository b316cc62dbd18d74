"""Members of groups do in small worlds what they are for. Planted faults name these tests: each would be found."""

from __future__ import annotations

from typing import Any

import pytest

from .groups.events import CLASSIC, CONSUMERS, MIGRATING, SHARERS, STREAMS, Accepted, DeadLetters, Dismissed, Returned, Told
from .groups.lives import TOPICS
from .script import Step
from .test_administration import restart
from .test_misfortunes import SMALL, events, sends, world

pytestmark = pytest.mark.merge  # worlds are simulated


def group_events(lives: list[Step], *kinds: Any) -> list[Any]:
    """Of a world in which these members live, and after which their group reads to the end."""
    steps = [*sends("kafka 0", TOPICS[0], 5), *lives, restart(11_000)]
    return events(world(steps, topics=dict.fromkeys(TOPICS, SMALL), calm_s=5.0), *kinds)


def lives(who: str, at_ms: int = 500, for_ms: int = 6000, **how: Any) -> Step:
    return Step(at_ms, who, "live", {"for_ms": for_ms, "ends": "stay", **how})


@pytest.mark.parametrize("kind", [CLASSIC, CONSUMERS])
def test_a_static_member_that_returns_in_time_has_its_partitions_and_no_rebalance(kind: str) -> None:
    static = lives(f"{kind} 0", instance="static", away_ms=500)
    [returned], told = group_events([static, lives(f"{kind} 1")], Returned, Told)
    assert returned.member == "static"
    assert len({event.epoch for event in told if event.at_ms < 11_000 and event.partitions}) <= 3


def test_the_older_one_of_two_clients_with_an_instance_id_is_fenced() -> None:
    twins = [lives(f"{CLASSIC} 0", instance="static"), lives(f"{CLASSIC} 1", 3000, instance="static")]
    [[fenced]] = group_events(twins, Dismissed)
    assert (fenced.who, fenced.error) == (f"{CLASSIC} 0", "FENCED_INSTANCE_ID")


def test_partitions_have_one_owner_while_a_group_changes_its_protocol_and_back() -> None:
    assert had_at_last(MIGRATING, is_classic=True) == {f"{MIGRATING} 0": 2, f"{MIGRATING} 1": 1}


def test_tasks_of_a_streams_group_have_one_owner() -> None:
    assert had_at_last(STREAMS) == {f"{STREAMS} 0": 2, f"{STREAMS} 1": 1}


def had_at_last(group: str, **how: Any) -> dict[str, int]:
    """How much two members had, of which the second one came later and left earlier."""
    stays, goes = lives(f"{group} 0", for_ms=9500, **how), Step(1500, f"{group} 1", "live", {"for_ms": 5500, "ends": "leave"})
    [told] = group_events([stays, goes], Told)
    return {event.who: len(event.partitions) for event in told if event.at_ms < 11_000 and event.partitions}


def test_what_a_share_member_acknowledges_after_it_has_left_counts() -> None:
    goes = [lives(f"{SHARERS} {number}", 500 + 100 * number, 600, ends="leave") for number in range(8)]
    steps = [*sends("kafka 0", TOPICS[0], 20), *goes]
    [accepted] = events(world(steps, topics=dict.fromkeys(TOPICS, SMALL), calm_s=5.0), Accepted)
    assert {event.error for event in accepted} == {"NONE"}


@pytest.mark.parametrize("after", [7, 10, 13, 16])
def test_a_record_that_a_share_group_gives_up_is_in_its_queue_whenever_the_power_goes(after: int) -> None:
    shares = [lives(f"{SHARERS} {number}") for number in range(2)]
    cut = Step(1000, "operator", "power", {"for_ms": 0, "after": after})
    steps = [*sends("kafka 0", TOPICS[0]), *shares, cut, restart(9000)]
    [[queue]] = events(world(steps, topics=dict.fromkeys(TOPICS, SMALL), calm_s=5.0), DeadLetters)
    assert queue.letters
    assert not queue.failed
