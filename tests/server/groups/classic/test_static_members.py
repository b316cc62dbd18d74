"""Static members (KIP-345): they come back under their instance id, and whoever had it before is fenced off."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic.values import GroupSettings, LeavingMember
from triolog.server.groups.values import GroupState

from tests.support.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Bench

ANY_OTHER = (("range", b"new"),)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_follower_that_returns_keeps_its_assignment_without_a_rebalance(bench: Bench, restarts: bool) -> None:
    """[KIP-345] Also with another subscription, which counts from the next rebalance on, as long as the protocol stays."""
    first = bench.joined(bench.join(group_instance_id="first", group_id="other"))
    assert (first.error, first.member_id, first.generation) == (ErrorCode.NONE, "first-0", 1), "it is not asked back"
    assert [(each.member_id, each.group_instance_id) for each in first.members] == [("first-0", "first")]
    leader, follower = bench.stable(2, ["one", "two"])
    if restarts:
        bench.restart()
    answer = bench.joined(bench.join(group_instance_id="two", protocols=ANY_OTHER))
    assert (answer.generation, answer.leader, answer.members, answer.skip_assignment) == (2, leader, (), False)
    assert answer.member_id not in (leader, follower)
    assert bench.state() is GroupState.STABLE
    assert bench.synced(bench.sync(answer.member_id, 2, group_instance_id="two")).assignment == follower.encode()
    assert bench.heartbeat(leader, 2) is ErrorCode.NONE
    caller = bench.join(leader)
    bench.join(answer.member_id, protocols=ANY_OTHER)
    assert [each.metadata for each in bench.joined(caller).members] == [b"topics", b"new"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_new_member_id_counts_once_it_is_stored_or_else_the_old_one_again(bench: Bench, fails: bool) -> None:
    leader, follower = bench.stable(2, ["one", "two"])
    bench.stores_at_once = False
    caller = bench.join(group_instance_id="two", protocols=ANY_OTHER)
    assert bench.is_waiting(caller)
    assert bench.heartbeat(follower, 2, "two") is ErrorCode.FENCED_INSTANCE_ID
    (bench.fail_store if fails else bench.store)()
    if fails:
        assert bench.joined(caller).error is ErrorCode.NOT_COORDINATOR
        assert bench.heartbeat(follower, 2, "two") is ErrorCode.NONE
        assert bench.joined(bench.join(follower)).generation == 2
        assert bench.groups.next_deadline_ms == bench.now_ms + SESSION_MS
    else:
        stored = {each.member_id: each.assignment for each in bench.log[-1].value.members}
        assert stored == {leader: leader.encode(), bench.joined(caller).member_id: follower.encode()}


@pytest.mark.parametrize("fails", [False, True])
def test_a_rebalance_that_begins_meanwhile_answers_it_instead(bench: Bench, fails: bool) -> None:
    leader, _, third = bench.stable(3, ["one", "two"])
    bench.stores_at_once = False
    caller = bench.join(group_instance_id="two")
    first = bench.join(leader)
    (bench.fail_store if fails else bench.store)()
    assert bench.is_waiting(caller)
    bench.join(third)
    assert bench.joined(caller).generation == bench.joined(first).generation == 4


def test_a_leader_that_returns_leads_the_next_generation_unless_it_can_skip_assigning(bench: Bench) -> None:
    """[KIP-814] It would bring an assignment for a generation that has one."""
    leader, follower = bench.stable(2, ["one", "two"])
    answer = bench.joined(bench.join(group_instance_id="one"))
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, (), False)
    assert answer.member_id != leader
    assert bench.synced(bench.sync(answer.member_id, 2)).assignment == leader.encode()
    caller = bench.join(answer.member_id)
    bench.join(follower)
    assert (bench.joined(caller).leader, len(bench.joined(caller).members)) == (answer.member_id, 2)
    skipping = {"supports_skipping_assignment": True, "group_id": "other"}
    _, follower = bench.stable(2, ["one", "two"], group_id="other")
    answer = bench.joined(bench.join(group_instance_id="one", **skipping))
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {each.member_id for each in answer.members} == {answer.member_id, follower}
    again = bench.joined(bench.join(group_instance_id="two", **skipping))
    assert (again.leader, again.skip_assignment, again.members) == (answer.member_id, False, ())


def test_a_return_that_changes_the_protocol_begins_a_rebalance(bench: Bench) -> None:
    both = (("range", b""), ("sticky", b""))
    leader, _ = bench.stable(2, ["one", "two"], protocols=both)
    caller = bench.join(group_instance_id="two", protocols=(("sticky", b""),))
    assert bench.is_waiting(caller)
    assert bench.state() is GroupState.PREPARING_REBALANCE
    bench.join(leader, protocols=both)
    assert (bench.joined(caller).generation, bench.joined(caller).protocol) == (3, "sticky")


def test_a_member_that_returns_during_a_rebalance_has_joined_and_fences_its_old_id_off(bench: Bench) -> None:
    leader, follower = bench.stable(2, ["one", "two"])
    first = bench.join(leader)
    caller = bench.join(group_instance_id="one")
    answer = bench.joined(first)
    assert (answer.error, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, leader)
    assert bench.is_waiting(caller)
    assert follower in bench.member_ids()
    assert {bench.joined(each).generation for each in (caller, bench.join(group_instance_id="two"))} == {3}


def test_who_comes_back_while_the_assignment_is_awaited_begins_a_rebalance(bench: Bench) -> None:
    """The leader may have made an assignment for the old member id by now."""
    leader, follower = bench.stable(2, ["one", "two"])
    for each in (leader, follower):
        bench.join(each, protocols=ANY_OTHER)
    waiting = bench.sync(follower, 3)
    caller = bench.join(group_instance_id="two", protocols=ANY_OTHER)
    assert bench.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.is_waiting(caller)
    bench.join(leader, protocols=ANY_OTHER)
    assert bench.joined(caller).generation == 4


def test_the_old_member_id_is_fenced_off_with_its_instance_id_and_unknown_without(bench: Bench) -> None:
    _, follower = bench.stable(2, ["one", "two"])
    bench.join(group_instance_id="two")
    for instance_id, expected in (("two", ErrorCode.FENCED_INSTANCE_ID), (None, ErrorCode.UNKNOWN_MEMBER_ID)):
        assert bench.heartbeat(follower, 2, instance_id) is expected
        assert bench.synced(bench.sync(follower, 2, group_instance_id=instance_id)).error is expected
        assert bench.joined(bench.join(follower, group_instance_id=instance_id)).error is expected
        assert bench.leave(LeavingMember(follower, instance_id)) == [expected]


def test_a_static_member_may_be_away_for_its_session(bench: Bench) -> None:
    leader, follower = bench.stable(2, ["one", "two"])
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(leader, 2, "one") is ErrorCode.NONE
    member_id = bench.joined(bench.join(group_instance_id="two")).member_id
    bench.advance(SESSION_MS - 1)
    assert bench.member_ids() == [leader, member_id]
    bench.advance(1)
    assert follower not in bench.member_ids()


def test_static_members_stay_in_a_rebalance_that_one_of_them_joins(bench: Bench) -> None:
    long = {"session_timeout_ms": 500_000}
    one, two, dynamic = bench.stable(3, ["one", "two"], **long)
    bench.leave(dynamic)
    bench.advance(3 * REBALANCE_MS + 1)
    assert bench.state() is GroupState.PREPARING_REBALANCE, "none has joined"
    caller = bench.join(one, **long)
    assert bench.is_waiting(caller)
    bench.advance(REBALANCE_MS)
    assert bench.joined(caller).generation == 4
    assert {each.member_id for each in bench.joined(caller).members} == {one, two}


def test_waiting_for_static_members_checks_only_now_and_then(bench: Bench) -> None:
    quick = {"rebalance_timeout_ms": 0}
    bench.stable(2, ["one"], **quick)
    looks, count = bench.groups, 0
    bench.leave(*[each for each in bench.member_ids() if not each.startswith("one")])
    end_ms = bench.now_ms + 1_000
    while (deadline_ms := looks.next_deadline_ms) is not None and deadline_ms <= end_ms:
        bench.now_ms, count = deadline_ms, count + 1
        bench.take(looks.on_time(deadline_ms))
    assert count <= 11
    assert bench.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_leaves_by_its_instance_id_alone(bench: Bench) -> None:
    """[KIP-345] An administrator removes it; when its client is closed it stays."""
    leader, _ = bench.stable(2, ["one", "two"])
    assert bench.leave(
        LeavingMember("", "two"), LeavingMember("", "three"), LeavingMember("somebody", "one"), LeavingMember(leader, "one")
    ) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE]
    assert bench.state() is GroupState.EMPTY
    assert bench.joined(bench.join(group_instance_id="two")).generation == 4


def test_a_static_member_returns_to_a_full_group_unless_a_rebalance_has_filled_it() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
    leader, _ = bench.stable(2, ["one", "two"])
    assert bench.joined(bench.join(group_instance_id="two")).error is ErrorCode.NONE
    assert bench.joined(bench.join(group_instance_id="three")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.leave(LeavingMember("", "one"))
    callers = [bench.join(group_instance_id=name) for name in ("three", "four")]
    assert bench.joined(bench.join(group_instance_id="two")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert all(map(bench.is_waiting, callers))
    assert leader not in bench.member_ids()


def test_who_comes_back_twice_before_it_is_stored_is_one_member(bench: Bench) -> None:
    leader, _ = bench.stable(2, ["one", "two"])
    bench.stores_at_once = False
    first, second = bench.join(group_instance_id="two"), bench.join(group_instance_id="two")
    assert bench.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    bench.store()
    assert bench.is_waiting(second)
    bench.store()
    assert bench.member_ids() == [leader, bench.joined(second).member_id]


def test_an_assignment_that_was_not_asked_for_is_expected_of_whoever_comes_back(bench: Bench) -> None:
    leader, follower = bench.stable(2, ["one", "two"])
    for each in (leader, follower):
        bench.join(each, protocols=ANY_OTHER)
    bench.sync(leader, 3)
    member_id = bench.joined(bench.join(group_instance_id="two", protocols=ANY_OTHER)).member_id
    for _ in range(REBALANCE_MS // 5_000):
        bench.heartbeat(leader, 3)
        bench.heartbeat(member_id, 3)
        bench.advance(5_000)
    assert bench.member_ids() == [leader]


def test_a_record_that_names_an_instance_or_a_member_twice_does_no_harm(bench: Bench) -> None:
    bench.stable(2, ["one", "two"])
    record = bench.log[-1]
    doubled = [*record.value.members, record.value.members[0], attrs.evolve(record.value.members[0], member_id="other")]
    bench.log = [record._replace(value=attrs.evolve(record.value, members=doubled))]
    bench.restart()
    assert bench.is_waiting(bench.join(group_instance_id="new"))
    assert bench.leave(*bench.member_ids()) == [ErrorCode.NONE] * 4
    assert bench.groups.describe(GROUP).state is GroupState.EMPTY  # type: ignore[union-attr]
