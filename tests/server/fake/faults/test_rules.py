"""When a rule fires, and what it says of what nobody understands. The ring of requests: what is kept, what is found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode
from triolog.server.fake.faults.faults import DiskFaults, Faults
from triolog.server.fake.faults.requests import CAPACITY, RequestLog, Wanted
from triolog.server.fake.faults.rules import Rule, RuleError, Subject, disk_rule_of, rule_of

PATIENCE_S = 30.0
HOUR_MS = 3_600_000
SUBJECT = Subject("Produce", "app-1", 0, {"orders": [0, 2]}, ["g"], ["tx"])


def fired(count: int, **trigger: Any) -> list[int]:
    """The requests, counted from 1, on which a rule is carried out."""
    faults = Faults()
    faults.add(rule_of({"api": "Produce", "delay_ms": 1, **trigger}))
    return [number for number in range(1, count + 1) if faults.decide(SUBJECT) is not None]


@given(count=st.integers(1, 50), nth=st.integers(1, 60), times=st.integers(1, 60))
def test_always_or_once_or_from_the_nth_on_so_many_times(count: int, nth: int, times: int) -> None:
    assert fired(count) == list(range(1, count + 1))
    assert fired(count, once=True) == [1]
    assert fired(count, nth=nth, times=times) == list(range(nth, min(count, nth + times - 1) + 1))


@given(count=st.integers(0, 200), probability=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_seed_fires_the_same_requests_again(count: int, probability: float, seed: int) -> None:
    random = Random(seed)
    expected = [number for number in range(1, count + 1) if random.random() < probability]
    assert fired(count, probability=probability, seed=seed) == expected


@given(count=st.integers(1, 200), times=st.integers(1, 20), seed=st.integers(0, 99))
def test_a_probability_never_fires_more_often_than_times(count: int, times: int, seed: int) -> None:
    assert len(fired(count, probability=0.5, times=times, seed=seed)) <= times


@pytest.mark.parametrize(
    ("match", "applies"),
    [
        ({}, True),
        ({"api": "PRODUCE"}, True),
        ({"api": ["fetch", "produce"]}, True),
        ({"api": "Fetch"}, False),
        ({"topic": "orders"}, True),
        ({"topic": "ord*"}, True),
        ({"topic": "orders", "partition": 2}, True),
        ({"topic": "orders", "partition": 1}, False),
        ({"partition": 0}, True),
        ({"topic": "payments"}, False),
        ({"group": "g"}, True),
        ({"group": "h"}, False),
        ({"transactional_id": "t?"}, True),
        ({"client_id": "app-*"}, True),
        ({"client_id": "other"}, False),
        ({"node": 0}, True),
        ({"node": 1}, False),
    ],
)
def test_what_a_rule_applies_to(match: dict[str, Any], applies: bool) -> None:
    assert rule_of({"hold": True, **match}).applies_to(SUBJECT) is applies


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=12), st.integers(1, 4))
def test_a_rule_fires_once_for_each_member_that_says_who_it_is(asking: list[str], times: int) -> None:
    faults = Faults()
    faults.add(rule_of({"error": "FENCED_MEMBER_EPOCH", "once_per_member": True, "times": times}))
    told = [member for member in asking if faults.decide(Subject("Heartbeat", "app", member_id=member)) is not None]
    assert told == [member for member in dict.fromkeys(asking) if member][:times]


def test_a_rule_fires_for_each_named_member_until_it_joins_again() -> None:
    faults = Faults()
    faults.add(rule_of({"error": "REBALANCE_IN_PROGRESS", "rejoining": ["a", "b"]}))
    requests = ["a", "a", "", "c", "b", "a joins", "a", "b", "new joins", "new", "b joins", "b"]
    fired = []
    for request in requests:
        member, _, is_joining = request.partition(" ")
        if faults.decide(Subject("Heartbeat", "app", member_id=member, is_joining=bool(is_joining))) is not None:
            fired.append(request)
    assert fired == ["a", "a", "b", "b"]
    (fault,) = faults
    assert fault.as_json()["rejoining"] == ["a", "b"]


def test_the_first_rule_that_fires_decides() -> None:
    faults = Faults()
    first = faults.add(rule_of({"once": True, "error": "NOT_LEADER_OR_FOLLOWER"}))
    second = faults.add(rule_of({"delay_ms": 1}))
    assert [faults.decide(SUBJECT) for _ in range(3)] == [first, second, second]
    assert (first.matched, first.fired, second.matched, second.fired) == (3, 1, 2, 2)
    faults.remove(second.number)
    assert faults.decide(SUBJECT) is None
    faults.clear()
    assert not faults.is_active


def test_a_rule_that_is_removed_lets_go_what_it_holds() -> None:
    faults = Faults()
    fault = faults.add(rule_of({"hold": True}))
    faults.remove(fault.number)
    assert fault.is_released


@pytest.mark.parametrize(
    ("read", "told", "complaint"),
    [
        (rule_of, {}, "without an effect"),
        (rule_of, {"eror": "NONE"}, "no such field"),
        (rule_of, {"error": "NOPE"}, "no error with that name"),
        (rule_of, {"error": 4711}, "no error with that name or number"),
        (rule_of, {"hold": 1}, "neither true nor false"),
        (rule_of, {"delay_ms": "5"}, "not a whole number"),
        (rule_of, {"delay_ms": -5}, "cannot be negative"),
        (rule_of, {"hold": True, "nth": 0}, "count from 1"),
        (rule_of, {"hold": True, "probability": 2}, "between 0 and 1"),
        (rule_of, {"error": "NOT_COORDINATOR", "disconnect": True}, "only one of these"),
        (rule_of, {"topic": 5, "hold": True}, "not text"),
        (rule_of, {"intercept": "print"}, "is not a function"),
        (rule_of, {"hold": True, "rejoining": "m-1"}, "not a list of member ids"),
        (rule_of, {"hold": True, "rejoining": [1]}, "not a list of member ids"),
        (disk_rule_of, {}, "effect is missing"),
        (disk_rule_of, {"effect": "melted"}, "expected one of full"),
        (disk_rule_of, {"effect": "delay"}, "delay_ms belongs"),
        (disk_rule_of, {"effect": "full", "operation": "read"}, "does not fail on a full disk"),
        (disk_rule_of, {"effect": "error", "operation": "seek"}, "expected one of write"),
        (disk_rule_of, {"effect": "error", "colour": 1}, "no such field"),
    ],
)
def test_a_rule_that_cannot_be_says_why(read: Callable[..., object], told: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RuleError, match=complaint):
        read(told)


def test_an_api_that_does_not_exist_is_refused_where_they_are_known() -> None:
    with pytest.raises(RuleError, match=r"no API .produse. \(did you mean .produce."):
        rule_of({"api": "Produse", "hold": True}, frozenset({"produce"}))


@pytest.mark.parametrize(
    "told",
    [
        {"api": ["fetch"], "topic": "t", "error": "OFFSET_OUT_OF_RANGE", "times": 2},
        {"client_id": "c", "delay_ms": 5, "probability": 0.5, "seed": 7},
        {"truncate_to": 0, "applied": True},
    ],
)
def test_a_rule_tells_what_it_was_made_of(told: dict[str, Any]) -> None:
    assert rule_of(told).as_json() == told


def test_errors_have_names_or_numbers() -> None:
    assert rule_of({"error": 6}).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Rule(error=ErrorCode.NONE).effects == ["error"]


def test_a_full_disk_refuses_writes_of_the_named_files_only() -> None:
    faults = DiskFaults()
    faults.add(disk_rule_of({"effect": "full", "path": "orders-*/*.log", "times": 1}))
    assert faults.check("sync", "/d/orders-0/0.log") is None
    assert faults.check("write", "/d/other-0/0.log") is None
    with pytest.raises(OSError, match="No space left"):
        faults.check("write", "/d/orders-0/0.log")
    assert faults.check("write", "/d/orders-0/0.log") is None


def test_an_error_and_a_delay_of_the_device() -> None:
    faults = DiskFaults()
    faults.add(disk_rule_of({"effect": "error", "operation": "sync", "once": True}))
    delay = faults.add(disk_rule_of({"effect": "delay", "delay_ms": 7}))
    with pytest.raises(OSError, match="Input/output error"):
        faults.check("sync", "/d/a")
    assert faults.check("sync", "/d/a") is delay


@pytest.mark.parametrize("call", ["release", "remove", "clear"])
def test_a_delay_ends_when_its_rule_is_released_or_gone(call: str) -> None:
    faults = DiskFaults()
    fault = faults.add(disk_rule_of({"effect": "delay", "delay_ms": HOUR_MS}))
    end = {"release": fault.release, "remove": lambda: faults.remove(fault.number), "clear": faults.clear}[call]
    with ThreadPoolExecutor(1) as device:
        waiting = device.submit(faults.wait_out, fault, lambda: False)
        end()
        waiting.result(PATIENCE_S)
    assert fault.is_released
    faults.wait_out(fault, lambda: False)


def test_a_delay_ends_when_who_waits_is_woken_and_has_no_reason_any_more() -> None:
    faults, crashed = DiskFaults(), threading.Event()
    fault = faults.add(disk_rule_of({"effect": "delay", "delay_ms": HOUR_MS}))
    with ThreadPoolExecutor(1) as device:
        waiting = device.submit(faults.wait_out, fault, crashed.is_set)
        crashed.set()
        faults.wake()
        waiting.result(PATIENCE_S)
    assert not fault.is_released


@given(size=st.integers(1, 1000), seed=st.integers(0, 99))
def test_a_torn_write_loses_some_of_what_was_not_synced(size: int, seed: int) -> None:
    faults = DiskFaults()
    faults.add(disk_rule_of({"effect": "torn", "path": "*.log", "seed": seed}))
    assert 1 <= faults.torn_bytes("/d/0.log", size) <= size
    assert faults.torn_bytes("/d/0.log", 0) == 0
    assert faults.torn_bytes("/d/0.index", size) == 0


def test_the_ring_keeps_the_last_requests_and_counts_all() -> None:
    log = RequestLog()
    for number in range(CAPACITY + 10):
        log.begin(number, 9, Subject("Produce", "c"), 1)
    assert (len(log), log.count, next(iter(log)).number) == (CAPACITY, CAPACITY + 10, 11)
    log.clear()
    assert (len(log), log.count) == (0, CAPACITY + 10)


def test_requests_are_found_by_what_they_are_about_and_how_they_ended() -> None:
    log = RequestLog()
    produce = log.begin(1, 9, Subject("Produce", "app-1", 0, {"orders": [0]}), 1)
    join = log.begin(2, 5, Subject("JoinGroup", "app-2", 1, groups=["g"]), 1)
    log.answered(produce, (6, 4711))
    assert produce.errors == ("NOT_LEADER_OR_FOLLOWER", "4711")
    assert str(produce) == "#1 Produce v9 client=app-1 orders[0] NOT_LEADER_OR_FOLLOWER,4711"
    assert str(join) == "#2 JoinGroup v5 client=app-2 g unanswered"
    for wanted in (
        Wanted(api="produce"),
        Wanted(topic="ord*"),
        Wanted(client_id="app-1"),
        Wanted(node=0),
        Wanted(error="NOT_LEADER_OR_FOLLOWER"),
        Wanted(answered=True),
    ):
        assert log.find(wanted) == [produce], wanted
    for wanted in (Wanted(api="JOIN_GROUP"), Wanted(group="g"), Wanted(answered=False), Wanted(after=1), Wanted(node=1)):
        assert log.find(wanted) == [join], wanted


def test_watchers_are_told_of_requests_and_answers() -> None:
    log, seen = RequestLog(), []
    log.watch(watcher := lambda: seen.append(log.count))
    log.answered(log.begin(1, 0, Subject("Fetch", "c"), 1), ())
    log.unwatch(watcher)
    log.begin(2, 0, Subject("Fetch", "c"), 1)
    assert seen == [1, 1]
