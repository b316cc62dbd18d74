"""The ring of requests: what is kept, what is found."""

from __future__ import annotations

from triolog.server.fake.faults.requests import CAPACITY, RequestLog, Wanted
from triolog.server.fake.faults.rules import Subject


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
