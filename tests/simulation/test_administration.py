"""The steps of administrators do in small worlds what they are for. Planted faults name these tests: each would be found."""

from __future__ import annotations

from typing import Any, Final

import pytest

from . import history as h
from .lives import LIVING
from .script import KEYED, Step
from .test_misfortunes import COMPACTED, SMALL, events, sends, world

pytestmark = pytest.mark.merge  # worlds are simulated

KEEP: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": "700"}
COMPACT: Final = {**KEEP, "cleanup.policy": "compact", "retention.ms": "2000"}
RETIRE: Final = {**KEEP, "retention.ms": "2000"}
CREATED: Final = {"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000", "file.delete.delay.ms": "0"}


def begin(config: dict[str, str]) -> Step:
    return Step(0, "owner 0", "begin", {"partitions": 1, "config": {**CREATED, **config}})


def writes(count: int, from_ms: int = 500) -> list[Step]:
    args = {"partition": 0, "count": 5, "batches": 1, "is_fresh": False}
    return [Step(from_ms + 200 * number, "scribe 0", "write", args) for number in range(count)]


def restart(at_ms: int) -> Step:
    """Worlds last until the operator has done."""
    return Step(at_ms, "operator", "restart", {"for_ms": 0})


def configure(at_ms: int, config: dict[str, str]) -> Step:
    return Step(at_ms, "owner 0", "configure", {"config": config})


def living(stored: list[h.Stored]) -> h.Stored:
    """The last life's only partition, as a reader of everything finds it."""
    return next(each for each in stored if each.partition.topic.startswith(LIVING) and not each.is_committed)


def test_records_of_a_topic_that_was_deleted_are_not_in_the_next_one() -> None:
    again = {"partitions": 2, "config": {**CREATED, **KEEP}}
    steps = [begin(KEEP), *writes(30), *(Step(at_ms, "owner 0", "again", again) for at_ms in (2000, 4500))]
    visit = {"partition": 0, "max_bytes": 10**6, "is_fresh": True}
    steps += [Step(at_ms, "visitor 0", "visit", visit) for at_ms in range(1000, 7000, 500)]
    stored, deleted, given_up = events(world([*steps, restart(8000)]), h.Stored, h.Deleted, h.GivenUp)
    assert [event.topic for event in deleted] == ["living~0", "living~1"]
    assert given_up
    assert {each.partition.topic for each in stored} == {"plain", "living~2"}
    assert 25 <= len(living(stored).records) < 60


def test_a_producer_that_knows_a_topic_by_its_name_writes_to_the_one_that_exists() -> None:
    args = {"count": 2, "share": 0.0}
    steps = [Step(at_ms, "remaker 0", "remake", args) for at_ms in (500, 2000, 4000)]
    steps += [Step(200 * number, "namer 0", "name", {"topic": "remade-0", "count": 2}) for number in range(40)]
    [happened] = events(world([*steps, restart(9000)]), h.Happened)
    assert sum("name:" in event.what for event in happened) < 80


def test_a_topic_gets_partitions_while_it_is_written() -> None:
    steps = [begin(KEEP), Step(1500, "owner 0", "grow", {"more": 2})]
    args = {"count": 1, "batches": 1, "is_fresh": True}
    steps += [Step(200 * number, "scribe 0", "write", {**args, "partition": number % 3}) for number in range(1, 20)]
    [stored] = events(world([*steps, restart(6000)]), h.Stored)
    assert {each.partition.partition for each in stored if each.records and each.partition.topic != "plain"} == {0, 1, 2}


def test_a_topic_is_compacted_and_retired_only_while_it_is_configured_so() -> None:
    """At first everything stays that was written after the policy was `delete` without a retention time."""
    first = [begin(COMPACT), *writes(15), configure(9000, KEEP), *writes(15, 10_000), restart(28_000)]
    [stored] = events(world(first), h.Stored)
    assert 75 <= len(living(stored).records) < 130
    [stored] = events(world([*first, configure(30_000, RETIRE), restart(50_000)]), h.Stored)
    assert living(stored).start_offset > 75


def test_deleted_offsets_and_groups_stay_deleted() -> None:
    where = {"topic": "plain", "partition": 0}
    steps = [Step(500 * number, "group 0", what, where) for number, what in enumerate(("commit", "resume", "forget", "resume"))]
    steps += [Step(3000, "group 0", "commit", where), Step(3500, "group 0", "disband"), Step(4000, "group 0", "resume", where)]
    steps += [restart(5000), Step(7000, "group 0", "resume", where), Step(7500, "group 0", "disband")]
    fetched, committed = events(world(steps), h.OffsetFetched, h.OffsetCommitted)
    assert [event.offset for event in fetched] == [1, -1, -1, -1]
    assert all(event.is_kept for event in committed)


@pytest.mark.parametrize("aborts", [True, False], ids=["by the administrator", "by the server"])
def test_a_hanging_transaction_is_aborted(aborts: bool) -> None:
    hang = {"topic": "plain", "partition": 0, "count": 3, "pause_ms": 500, "aborts": aborts}
    steps = [*sends("kafka 0", "plain", 10), Step(1000, "hanger 0", "hang", hang), restart(4000)]
    [everything, committed] = events(world(steps), h.Stored)[0]
    assert len(everything.records) - len(committed.records) == 3
    assert everything.end_offset == committed.end_offset


def test_a_world_lasts_until_the_server_has_aborted_what_hangs() -> None:
    """Seed 80: there was no operator any more."""
    hang = {"topic": "plain", "partition": 0, "count": 3, "pause_ms": 0, "aborts": False}
    [everything, committed] = events(world([Step(135_000, "hanger 0", "hang", hang)]), h.Stored)[0]
    assert (everything.end_offset, committed.end_offset) == (4, 4)


def test_the_transaction_of_a_producer_is_aborted_under_its_feet() -> None:
    transaction = {"parts": [{"topic": "plain", "partition": 0, "count": 4}], "end": "commit", "pause_ms": 2000}
    steps = [Step(500, "mover 0", "transaction", transaction), Step(1500, "admin 0", "abort", {"transactional_id": "mover"})]
    ended, [_, committed] = events(world([*steps, restart(6000)]), h.Ended, h.Stored)
    assert [event.is_committed for event in ended] != [True]
    assert not committed.records


@pytest.mark.parametrize(("tool", "end"), [("repair", "kill"), ("reindex", "stop"), ("restore", "kill"), ("compact", "stop")])
def test_a_command_between_two_lives_keeps_every_record(tool: str, end: str) -> None:
    """Of the compacted topic the newest of each key, and nothing else is missing in the other one."""
    args: dict[str, Any] = {"end": end, "for_ms": 0}
    more = {"topic": KEYED, "include_active": True} if tool == "compact" else {}
    steps = [*sends("kafka 0", "plain"), *sends("keyed 0", KEYED)]
    steps += [Step(at_ms, "operator", tool, {**args, **more}) for at_ms in (2050, 4500)]
    steps += [Step(6000, "operator", "verify", {"for_ms": 0})]
    topics = {"plain": SMALL, KEYED: COMPACTED}
    [stored] = events(world(steps, topics=topics), h.Stored)
    plain = next(each for each in stored if each.partition.topic == "plain")
    assert len(plain.records) == 100


def test_a_directory_without_a_list_of_topics_is_adopted_with_all_that_it_has() -> None:
    where = {"topic": "plain", "partition": 0}
    steps = [*sends("kafka 0", "plain"), Step(1000, "group 0", "commit", where), Step(2050, "operator", "adopt", {"for_ms": 0})]
    steps += [Step(3000, "group 0", "resume", where), restart(5000)]
    [everything, _], [fetched] = events(world(steps), h.Stored, h.OffsetFetched)
    assert len(everything.records) == 100
    assert fetched.offset > 0


def test_repair_takes_only_the_damaged_batch_out() -> None:
    rot = {"topic": "plain", "partition": 0, "share": 0.3, "byte": 0.9, "bit": 2, "end": "stop", "for_ms": 0}
    repair = Step(8000, "operator", "repair", {"end": "stop", "for_ms": 0})
    steps = [*sends("kafka 0", "plain"), Step(6000, "operator", "rot", rot), repair]
    steps += [Step(10_000, "admin 0", "accept", {"topic": "plain"}), restart(12_000)]
    [damaged], stored, refused = events(world(steps, rots=True), h.Damaged, h.Stored, h.Refused)
    assert {record.offset for record in stored[0].records} == set(range(100)) - set(damaged.offsets)
    assert not refused


def test_users_and_quotas_are_what_was_set_last() -> None:
    steps = [
        Step(500, "registrar 0", "quota", {"name": "q0", "value": 1e6}),
        Step(1000, "registrar 0", "user", {"name": "u0", "is_there": True}),
        Step(1500, "operator", "power", {"for_ms": 0, "after": 0}),
        Step(4000, "registrar 0", "quota", {"name": "q0", "value": None}),
        Step(4500, "registrar 0", "user", {"name": "u0", "is_there": False}),
        Step(6000, "registrar 0", "look"),
    ]
    events(world([*steps, restart(5000)]))
