"""The leader's assignment: who may bring it, who gets it, and that it is stored before anybody has it."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic.values import SyncAnswer
from triolog.server.groups.values import GroupState

from tests.support.group_bench import GROUP, Bench


def two_in_generation_three(bench: Bench) -> list[str]:
    """(leader, follower), both told generation 3 and neither synced."""
    members = bench.stable(2)
    for each in members:
        bench.join(each, protocols=(("range", b"new"),))
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    return members


def test_followers_wait_for_the_leader_and_each_gets_its_part(bench: Bench) -> None:
    leader, follower = two_in_generation_three(bench)
    waiting = bench.sync(follower, 3, assignments=((follower, b"mine"),))
    assert bench.is_waiting(waiting)
    leading = bench.sync(leader, 3, assignments=((leader, b"L"), (follower, b"F"), ("stranger", b"S")))
    expected = SyncAnswer(protocol_type="consumer", protocol="range", assignment=b"F")
    assert bench.synced(waiting) == bench.synced(bench.sync(follower, 3)) == expected
    assert bench.synced(leading).assignment == bench.synced(bench.sync(leader, 3)).assignment == b"L"
    assert bench.state() is GroupState.STABLE
    assert {each.member_id: each.assignment for each in bench.log[-1].value.members} == {leader: b"L", follower: b"F"}


def test_members_get_the_first_assignment_of_the_leader_once_it_is_stored(bench: Bench) -> None:
    """What is stored and what members are given must not be two things."""
    leader, follower = two_in_generation_three(bench)
    bench.stores_at_once = False
    first = bench.sync(leader, 3, assignments=((follower, b"F"),))
    second = bench.sync(leader, 3, assignments=((leader, b"2"),))
    assert bench.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    callers = [second, bench.sync(follower, 3)]
    assert all(map(bench.is_waiting, callers))
    assert (bench.state(), len(bench.waiting_stores)) == (GroupState.COMPLETING_REBALANCE, 1)
    bench.store()
    assert [bench.synced(caller).assignment for caller in callers] == [b"", b"F"]
    assert bench.state() is GroupState.STABLE


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_members_join_again_when_an_assignment_is_not_stored(bench: Bench, error: ErrorCode, answered: ErrorCode) -> None:
    leader, follower = two_in_generation_three(bench)
    bench.stores_at_once = False
    callers = [bench.sync(leader, 3, assignments=((follower, b"F"),)), bench.sync(follower, 3)]
    bench.fail_store(error)
    assert [bench.synced(caller) for caller in callers] == [SyncAnswer(error=answered)] * 2
    assert bench.heartbeat(follower, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [bench.join(each) for each in (leader, follower)]
    assert [bench.joined(caller).generation for caller in again] == [4, 4]


@pytest.mark.parametrize("fails", [False, True])
def test_an_assignment_that_is_stored_too_late_does_not_count(bench: Bench, fails: bool) -> None:
    leader, follower = two_in_generation_three(bench)
    bench.stores_at_once = False
    caller = bench.sync(leader, 3, assignments=((follower, b"F"),))
    bench.enter()
    assert bench.synced(caller).error is ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(leader), bench.join(follower)
    assert [bench.joined(each).generation for each in again] == [4, 4]
    (bench.fail_store if fails else bench.store)()
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    assert bench.is_waiting(bench.sync(follower, 4))


def test_each_sync_of_a_member_is_answered(bench: Bench) -> None:
    """The first when the second comes, the second when another rebalance begins."""
    _, follower = two_in_generation_three(bench)
    first, second = bench.sync(follower, 3), bench.sync(follower, 3)
    assert bench.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.is_waiting(second)
    bench.enter()
    assert bench.synced(second) == SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
    assert bench.synced(bench.sync(follower, 3)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_for_its_assignment_does_not_expire(bench: Bench) -> None:
    leader, follower = two_in_generation_three(bench)
    caller = bench.sync(follower, 3)
    for _ in range(5):
        bench.advance(9_000)
        assert bench.heartbeat(leader, 3) is ErrorCode.NONE
    assert bench.is_waiting(caller)
    bench.sync(leader, 3)
    assert bench.synced(caller).error is ErrorCode.NONE
    bench.advance(9_999)
    assert bench.heartbeat(leader, 3) is ErrorCode.NONE
    assert bench.member_ids() == [leader, follower]
    bench.advance(1)
    assert bench.member_ids() == [leader]


def test_who_may_not_ask_is_told_why(bench: Bench) -> None:
    assert bench.synced(bench.sync("nobody", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = two_in_generation_three(bench)
    for changes, expected in (
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "instance"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 4}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        assert bench.synced(bench.sync(follower, **{"generation": 3, **changes})).error is expected
    caller = bench.sync(leader, 3, protocol_type="consumer", protocol="range")
    assert bench.synced(caller).error is ErrorCode.NONE
    bench.leave(leader, follower)
    assert bench.synced(bench.sync(leader, 3)).error is ErrorCode.UNKNOWN_MEMBER_ID
    bench.groups.begin_delete(GROUP)
    assert bench.synced(bench.sync(leader, 3)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
