"""From one generation to the next: who is waited for, how long, and who is out."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic.values import GroupSettings
from triolog.server.groups.values import GroupState

from tests.support.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Bench

DELAY_MS = 3_000
NEW_MEMBER_MS = 300_000


def delayed() -> Bench:
    return Bench(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))


def test_an_empty_group_waits_while_members_keep_coming() -> None:
    bench = delayed()
    members = [bench.enter()]
    for _ in range(3):
        bench.advance(DELAY_MS - 1)
        members.append(bench.enter())
    assert all(bench.is_waiting(caller) for _, caller in members)
    assert bench.state() is GroupState.PREPARING_REBALANCE
    bench.advance(2 * DELAY_MS)
    answers = [bench.joined(caller) for _, caller in members]
    assert {answer.generation for answer in answers} == {1}
    assert [len(answer.members) for answer in answers] == [4, 0, 0, 0]
    _, caller = bench.enter()
    for member_id, _ in members:
        bench.join(member_id)
    assert bench.joined(caller).generation == 2, "the delay is for empty groups only"


def test_the_delay_does_not_go_on_for_longer_than_the_rebalance_timeout() -> None:
    bench = delayed()
    started_ms = bench.now_ms
    _, first = bench.enter(rebalance_timeout_ms=10_000)
    while bench.is_waiting(first):
        bench.enter(rebalance_timeout_ms=10_000)
        bench.advance(500)
    assert 10_000 - DELAY_MS <= bench.now_ms - started_ms <= 10_000 + 2 * DELAY_MS


def test_a_group_whose_members_all_left_during_the_delay_is_empty_again() -> None:
    bench = delayed()
    member_id, caller = bench.enter()
    bench.leave(member_id)
    assert bench.joined(caller).error is ErrorCode.UNKNOWN_MEMBER_ID
    bench.advance(DELAY_MS)
    assert bench.state() is GroupState.EMPTY
    assert bench.log[-1].value.members == []
    _, caller = bench.enter()
    bench.advance(DELAY_MS)
    assert bench.joined(caller).generation == 2


def test_who_joins_waits_until_all_members_have_joined_again(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    third, caller = bench.enter()
    assert bench.state() is GroupState.PREPARING_REBALANCE
    assert bench.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    first = bench.join(follower)
    assert bench.is_waiting(caller)
    assert bench.is_waiting(first)
    second = bench.join(leader)
    answers = {name: bench.joined(each) for name, each in ((leader, second), (follower, first), (third, caller))}
    assert {answer.generation for answer in answers.values()} == {3}
    assert {answer.leader for answer in answers.values()} == {leader}
    assert {answer.protocol for answer in answers.values()} == {"range"}
    assert {each.member_id for each in answers[leader].members} == {leader, follower, third}
    assert [answers[each].members for each in (follower, third)] == [(), ()]


def test_who_has_not_joined_by_the_rebalance_timeout_is_out(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    caller = bench.join(leader, rebalance_timeout_ms=1_000)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        bench.advance(5_000)
        assert bench.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(4_999)
    assert bench.is_waiting(caller), "the timeout is that of the most patient member"
    bench.advance(1)
    assert bench.joined(caller).generation == 3
    assert bench.member_ids() == [leader]
    assert bench.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.joined(bench.join(follower)).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("end", ["joins", "leaves", "expires"])
def test_a_member_id_that_was_given_out_is_waited_for_until_it_joins_leaves_or_expires(bench: Bench, end: str) -> None:
    [leader] = bench.stable(1)
    pending = bench.joined(bench.join()).member_id
    assert bench.state() is GroupState.STABLE
    caller = bench.join(leader)
    assert bench.is_waiting(caller)
    if end == "joins":
        bench.join(pending)
    elif end == "leaves":
        assert bench.leave(pending) == [ErrorCode.NONE]
    else:
        bench.advance(SESSION_MS)
    assert bench.joined(caller).generation == 2
    assert bench.member_ids() == ([leader, pending] if end == "joins" else [leader])
    assert end == "joins" or bench.joined(bench.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_begins_again_at_one_behind_the_last_number(bench: Bench) -> None:
    bench.stable(1)
    record = bench.log[-1]
    bench.log = [record._replace(value=attrs.evolve(record.value, generation=2**31 - 1))]
    bench.restart()
    assert bench.joined(bench.join(bench.member_ids()[0])).generation == 1


def test_a_member_that_is_not_heard_of_is_out_and_the_others_rebalance(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(leader, 2) is ErrorCode.NONE
    bench.advance(1)
    assert bench.member_ids() == [leader]
    assert bench.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.joined(bench.join(leader)).generation == 3
    bench.advance(REBALANCE_MS)
    assert bench.state() is GroupState.EMPTY
    value = bench.log[-1].value
    assert (value.members, value.generation, value.protocol, value.leader) == ([], 4, None, None)
    assert bench.groups.next_deadline_ms is None


def test_a_parked_member_does_not_expire_and_its_session_begins_with_the_answer(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    caller = bench.join(leader)
    for _ in range(5):
        bench.advance(SESSION_MS - 1)
        bench.heartbeat(follower, 2)
    assert bench.is_waiting(caller)
    bench.join(follower)
    bench.advance(SESSION_MS - 1)
    assert bench.member_ids() == [leader, follower]
    bench.advance(1)
    assert bench.member_ids() == []


def test_a_new_member_is_parked_for_five_minutes_at_most() -> None:
    """Nobody notices when it has gone away, and a client that tries again and again would fill the group."""
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0, max_session_timeout_ms=10_000_000))
    patient = {"session_timeout_ms": 3_600_000, "rebalance_timeout_ms": 3_600_000}
    [leader] = bench.stable(1, **patient)
    member_id, caller = bench.enter(**patient)
    bench.advance(NEW_MEMBER_MS - 1)
    assert bench.is_waiting(caller)
    bench.advance(1)
    assert bench.joined(caller).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.member_ids() == [leader]
    assert bench.joined(bench.join(member_id, **patient)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.joined(bench.join(leader, **patient)).generation == 2


def test_a_leader_that_does_not_sync_is_removed_after_the_rebalance_timeout(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    callers = [bench.join(each, protocols=(("range", b"new"),)) for each in (leader, follower)]
    assert {bench.joined(caller).generation for caller in callers} == {3}
    waiting = bench.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        assert bench.heartbeat(leader, 3) is ErrorCode.NONE
        bench.advance(5_000)
    assert bench.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.member_ids() == [follower]
    assert bench.heartbeat(leader, 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.joined(bench.join(follower)).leader == follower


def test_a_follower_that_does_not_sync_is_removed_from_a_stable_group(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    for each in (leader, follower):
        bench.join(each, protocols=(("range", b"new"),))
    bench.sync(leader, 3)
    assert bench.state() is GroupState.STABLE
    for _ in range(REBALANCE_MS // 5_000):
        assert bench.heartbeat(leader, 3) is bench.heartbeat(follower, 3) is ErrorCode.NONE
        bench.advance(5_000)
    assert bench.member_ids() == [leader]
    assert bench.state() is GroupState.PREPARING_REBALANCE


def test_heartbeats_are_answered_by_what_the_group_does(bench: Bench) -> None:
    assert bench.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    pending = bench.joined(bench.join()).member_id
    assert bench.heartbeat(pending, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.join(pending)
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    assert bench.heartbeat(pending, 1) is ErrorCode.NONE
    bench.sync(pending, 1)
    assert bench.heartbeat(pending, 1) is ErrorCode.NONE
    assert bench.heartbeat(pending, 0) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(pending, 2) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat("other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.enter()
    assert bench.heartbeat(pending, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    bench.leave(*bench.member_ids())
    assert bench.heartbeat(pending, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.groups.begin_delete(GROUP)
    assert bench.heartbeat(pending, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_several_members_leave_with_an_answer_each_and_one_rebalance(bench: Bench) -> None:
    members = bench.stable(3)
    assert bench.leave(members[1], "nobody", members[2], members[1]) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert bench.state() is GroupState.PREPARING_REBALANCE
    assert bench.joined(bench.join(members[0])).generation == 4
    assert bench.leave("nobody", group_id="other") == [ErrorCode.UNKNOWN_MEMBER_ID]
    bench.leave(members[0])
    assert bench.leave(members[0], "") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_member_leaves_an_empty_group_whose_generation_goes_on(bench: Bench, restarts: bool) -> None:
    [member_id] = bench.stable(1)
    bench.leave(member_id)
    if restarts:
        bench.restart()
    assert bench.state() is GroupState.EMPTY
    assert (bench.log[-1].value.members, bench.log[-1].value.generation) == ([], 2)
    assert bench.joined(bench.enter(protocol_type="connect", protocols=(("default", b""),))[1]).generation == 3
    assert bench.groups.describe(GROUP).protocol_type == "connect"  # type: ignore[union-attr]


def test_a_waiting_member_that_leaves_is_answered_and_the_others_continue(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    third, caller = bench.enter()
    waiting = [bench.join(leader), bench.join(follower, protocols=(("range", b"new"),))]
    assert bench.joined(caller).generation == 3
    assert [bench.joined(each).generation for each in waiting] == [3, 3]
    fourth, parked = bench.enter()
    bench.join(leader)
    bench.join(follower)
    assert bench.leave(third, fourth) == [ErrorCode.NONE, ErrorCode.NONE]
    assert bench.joined(parked).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.member_ids() == [leader, follower]
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    syncing = bench.sync(follower, 4)
    bench.leave(follower)
    assert bench.synced(syncing).error is ErrorCode.UNKNOWN_MEMBER_ID
