"""What the worlds have go wrong with files does happen in them: logs are compacted, bits flip, directories fail, power goes."""

from __future__ import annotations

import errno
import logging
import os
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.support.crash_fs import PowerCut

from . import history as h
from .device.disk import PAGE_BYTES, SimulatedDisk
from .script import KEYED, Script, Step
from .verdict import judge

pytestmark = pytest.mark.merge  # worlds are simulated

SMALL: Final = {"segment.bytes": "700", "fetch.check.crcs": "true"}
COMPACTED: Final = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Of what the server says of damage."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def sends(who: str, topic: str, count: int = 20) -> list[Step]:
    return [Step(200 * number, who, "send", {"topic": topic, "partition": 0, "count": 5}) for number in range(count)]


def world(steps: list[Step], topic: str = "plain", config: dict[str, str] = SMALL, **fields: Any) -> Script:
    """`topics`: configurations by name, for more than one."""
    fields = {"durability": "fsync", "topics": {topic: config}, **fields}
    topics = {name: {"partitions": 1, "config": each} for name, each in fields.pop("topics").items()}
    steps = sorted(steps, key=lambda step: step.at_ms)
    return Script("misfortunes", fields.pop("durability"), topics, tuple(steps), **fields)


def events(script: Script, *kinds: type[h.Event]) -> list[Any]:
    """Of a world in which nothing was wrong: the events of each kind."""
    history = h.History()
    verdict = judge(script, history)
    assert verdict.is_good, str(verdict)
    return [[event for event in history.events if isinstance(event, kind)] for kind in kinds]


def test_a_topic_is_compacted_while_it_is_written_and_children_are_killed() -> None:
    kills = [Step(at_ms, "operator", "kill", {"for_ms": 0, "after": 3, "when": "child"}) for at_ms in (1000, 6000)]
    ends = Step(20_000, "operator", "clock", {"ms": 0})
    script = world([*sends("keyed 0", KEYED, 40), *kills, Step(9000, "operator", "child"), ends], KEYED, COMPACTED)
    [[everything, _]] = events(script, h.Stored)
    assert everything.end_offset > 150
    assert 5 <= len(everything.records) < 100


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_flipped_bit_is_met_by_readers_and_by_nobody_else(end: str) -> None:
    rot = {"topic": "plain", "partition": 0, "share": 0.3, "byte": 0.9, "bit": 2, "end": end, "for_ms": 0}
    script = world([*sends("kafka 0", "plain"), Step(6000, "operator", "rot", rot)], rots=True)
    [damaged], refused = events(script, h.Damaged, h.Refused)
    assert {event.offset for event in refused} == set(damaged.offsets)


def test_a_directory_fails_and_comes_back() -> None:
    topics = {name: {"partitions": 2, "config": SMALL} for name in ("plain", "stamped")}
    steps = [*sends("kafka 0", "plain"), *sends("kafka 1", "stamped", 80)]
    steps += [Step(2000, "operator", "fail_directory", {"directory": 0}), Step(14_000, "operator", "replug", {"for_ms": 100})]
    script = Script("directory", "fsync", topics, tuple(sorted(steps, key=lambda step: step.at_ms)), directories=2)
    [everything] = events(script, h.Stored)
    assert all(event.end_offset >= 100 for event in everything if event.partition.partition == 0)


def test_a_power_cut_takes_what_was_not_synced_and_that_is_found_out() -> None:
    steps = [*sends("kafka 0", "plain", 60), Step(5100, "operator", "power", {"for_ms": 0, "after": 0})]
    steps.sort(key=lambda step: step.at_ms)
    lost = 0
    for number in range(6):
        script = Script(f"power {number}", "os", {"plain": {"partitions": 1, "config": {}}}, tuple(steps))
        [_], [survived] = events(script, h.Lost, h.Survived)
        lost += not survived.records
    assert lost


def test_what_a_sync_has_failed_on_may_be_lost_at_the_next_start() -> None:
    """Seed 141."""
    fail = Step(2000, "operator", "fail", {"operation": "sync", "error": "EIO", "skip": 0})
    kill = Step(4000, "operator", "kill", {"for_ms": 0, "after": 0})
    script = world([*sends("kafka 0", "plain"), fail, kill], durability="group:100")
    [lost], [_] = events(script, h.Lost, h.Survived)
    assert lost.window_ms is None


def test_who_gets_an_epoch_that_was_lost_is_introduced_as_another_one() -> None:
    """A batch of the new owner may be answered with the place of one of the old owner, so the checker has to know of both."""
    parts = [{"topic": "plain", "partition": 0, "count": 2}]
    steps = [
        Step(at_ms, who, "transaction", {"parts": parts, "end": "commit", "pause_ms": pause_ms})
        for at_ms, who, pause_ms in ((500, "mover 0", 0), (4000, "mover 1", 2000), (12_000, "mover 1", 0))
    ]
    steps += [Step(2000, "operator", "restart", {"for_ms": 0}), Step(5000, "operator", "power", {"for_ms": 100, "after": 0})]
    topics = {"plain": {"partitions": 1, "config": {"flush.messages": "1"}}}
    are_given_again = 0
    for number in range(4):
        script = Script(f"epoch {number}", "os", topics, tuple(sorted(steps, key=lambda step: step.at_ms)))
        introductions, sends_of_all = events(script, h.Introduced, h.Send)
        introduced = {event.producer: (event.producer_id, event.epoch) for event in introductions}
        assert introduced.keys() == {event.producer for event in sends_of_all}
        are_given_again += len(set(introduced.values())) < len(introduced)
    assert are_given_again


def test_a_careless_producer_that_got_no_answer_sends_nothing_behind_what_may_be_missing() -> None:
    """Seed 50230."""
    parts = [{"topic": "plain", "partition": 0, "count": 2}] * 2
    said = {"parts": parts, "end": "commit", "pause_ms": 200, "is_careless": True}
    steps = [Step(at_ms, "zombie 0", "transaction", said) for at_ms in (500, 2000)]
    script = world([*steps, Step(2100, "operator", "restart", {"for_ms": 5000})], durability="os")
    [given_up], ended = events(script, h.GivenUp, h.Ended)
    assert given_up.error == "no answer"
    assert [event.is_committed for event in ended] == [True, None]


def test_offsets_of_a_stopped_log_that_lost_its_end_are_given_to_nobody() -> None:
    shorten = {"topic": "plain", "partition": 0, "batches": 2, "for_ms": 0}
    script = world([*sends("kafka 0", "plain"), Step(2100, "operator", "shorten", shorten)], rots=True)
    [damaged], [everything, _] = events(script, h.Damaged, h.Stored)
    assert len(damaged.offsets) == 10
    assert everything.end_offset > damaged.next_offset
    assert {record.offset for record in everything.records} == set(range(everything.end_offset)) - set(damaged.offsets)


def test_a_server_does_not_start_with_another_digit_in_the_file_of_topics() -> None:
    refused = 0
    for number in range(6):
        misprint = {"directory": 0, "share": 0.1 + 0.15 * number, "bit": 0, "for_ms": 0}
        script = world([*sends("kafka 0", "plain", 5), Step(1500, "operator", "misprint", misprint)])
        [happened] = events(script, h.Happened)
        refused += any("topics.json" in event.what and "not start" in event.what for event in happened)
    assert refused


def test_what_was_appended_before_a_stop_and_not_answered_is_known_again() -> None:
    """Of five batches any, and of a bundle those that were stored before it grew."""
    steps = [
        Step(100 * number, who, "send", {"topic": "plain", "partition": 0, "count": 1, "batches": 5})
        for number in range(20)
        for who in ("kafka 0", "bundle 0")
    ]
    restart = Step(1050, "operator", "restart", {"for_ms": 0, "unheard_ms": 300})
    given_up, acknowledged = events(world([*steps, restart]), h.GivenUp, h.Acknowledged)
    assert not given_up
    assert sum(len(event.ids) for event in acknowledged) == 200


def a_disk(seed: int) -> tuple[SimulatedDisk, int]:
    """And a descriptor of an empty file that is on the device."""
    disk = SimulatedDisk(page_bytes=PAGE_BYTES, clock=lambda: 0.0, rng=random.Random(seed))
    fd = disk.open("/file", os.O_RDWR | os.O_CREAT)
    disk.sync_all()
    return disk, fd


def test_the_write_in_which_a_process_is_killed_may_be_done_up_to_any_page() -> None:
    sizes = set()
    for seed in range(40):
        disk, fd = a_disk(seed)
        disk.write(fd, [b"a" * 100], 0)
        disk.cut_after(0)
        with pytest.raises(PowerCut):
            disk.write(fd, [b"b" * 3 * PAGE_BYTES], 100)
        sizes.add(len(disk.copy().content("/file")))
    assert sizes == {100, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES}


def test_what_could_not_be_written_reads_differently_one_day() -> None:
    seen = set()
    for seed in range(20):
        disk, fd = a_disk(seed)
        disk.write(fd, [b"a" * 100], 0)
        disk.fail_next("sync", errno.EIO)
        with pytest.raises(OSError, match="sync"):
            disk.sync(fd)
        seen |= {disk.read(fd, 100, 0) for _ in range(20)}
    assert seen == {b"a" * 100, bytes(100)}
