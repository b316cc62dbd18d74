"""From one generation to the next: who is waited for, how long, and who is out. Who may join a group: member ids, protocols,
limits, and joining again. Static members (KIP-345): they come back under their instance id, and whoever had it before is
fenced off."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic import values
from triolog.server.groups.classic.values import GroupSettings, LeavingMember
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


NO_DELAY = values.GroupSettings(initial_rebalance_delay_ms=0)


def error_of(bench: Bench, caller: int) -> ErrorCode:
    return bench.joined(caller).error


def test_who_has_no_member_id_gets_one_and_has_to_come_again(bench: Bench) -> None:
    """[KIP-394] So that a client that never gets its answer leaves no member behind."""
    answer = bench.joined(bench.join())
    assert answer == values.JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="client-0")
    assert bench.member_ids() == []
    joined = bench.joined(bench.join("client-0"))
    assert (joined.error, joined.member_id, joined.leader, joined.generation) == (ErrorCode.NONE, "client-0", "client-0", 1)
    assert (joined.protocol_type, joined.protocol, joined.skip_assignment) == ("consumer", "range", False)
    assert [each.member_id for each in joined.members] == bench.member_ids() == ["client-0"]
    assert bench.state() is values.GroupState.COMPLETING_REBALANCE
    older = bench.joined(bench.join(group_id="older", client_id="c" * 30_000, requires_known_member_id=False))
    assert (older.error, older.member_id, older.generation) == (ErrorCode.NONE, "c" * 255 + "-1", 1), "before version 4"


def test_a_member_id_that_was_given_out_is_for_one_session_and_one_dynamic_member() -> None:
    bench = Bench(attrs.evolve(NO_DELAY, max_size=2))
    member_id, other = (bench.joined(bench.join()).member_id for _ in range(2))
    bench.join(group_id="other")
    assert error_of(bench, bench.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error_of(bench, bench.join(member_id, group_instance_id="one")) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.advance(SESSION_MS - 1)
    assert bench.state("other") is values.GroupState.EMPTY
    assert error_of(bench, bench.join(member_id)) is ErrorCode.NONE
    bench.sync(member_id, 1)
    bench.advance(1)
    assert error_of(bench, bench.join(other)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (bench.member_ids(), len(bench.groups)) == ([member_id], 1)


def test_a_member_id_of_a_group_that_is_gone_or_never_was_is_not_known(bench: Bench) -> None:
    answer = bench.joined(bench.join("somebody"))
    assert answer == values.JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id="somebody")
    assert len(bench.groups) == 0
    bench.stable(1)
    assert error_of(bench, bench.join("somebody")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_timeout_is_within_the_bounds(bench: Bench) -> None:
    for session_timeout_ms in (5_999, 1_800_001, -1):
        assert error_of(bench, bench.join(session_timeout_ms=session_timeout_ms)) is ErrorCode.INVALID_SESSION_TIMEOUT
    for session_timeout_ms in (6_000, 1_800_000):
        assert error_of(bench, bench.join(session_timeout_ms=session_timeout_ms)) is ErrorCode.MEMBER_ID_REQUIRED
    bench = Bench(attrs.evolve(NO_DELAY, min_session_timeout_ms=1))
    _, caller = bench.enter(session_timeout_ms=1)
    assert error_of(bench, caller) is ErrorCode.NONE
    bench.advance(1)
    assert bench.member_ids() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": tuple((f"p{number}", b"") for number in range(values.MAX_MEMBER_PROTOCOLS + 1))},
        {"protocols": (("p", bytes(values.MAX_MEMBER_METADATA_BYTES)),)},
        {"protocols": (("p" * 32_768, b""),)},
        {"protocol_type": "é" * 16_384},
        {"rebalance_timeout_ms": 2**31},
        {"group_instance_id": ""},
        {"group_instance_id": "i" * 250},
    ],
    ids=["protocols", "metadata", "long name", "long type", "long timeout", "no instance id", "long instance id"],
)
def test_what_is_too_much_is_refused_before_anything_is_kept(bench: Bench, changes: dict[str, object]) -> None:
    assert error_of(bench, bench.join(**changes)) is ErrorCode.INVALID_REQUEST
    assert len(bench.groups) == 0


def test_groups_and_what_all_members_say_of_themselves_have_limits() -> None:
    bench = Bench(attrs.evolve(NO_DELAY, max_groups=2))
    for name in ("a", "b"):
        assert error_of(bench, bench.join(group_id=name)) is ErrorCode.MEMBER_ID_REQUIRED
    assert error_of(bench, bench.join(group_id="c")) is ErrorCode.POLICY_VIOLATION
    assert error_of(bench, bench.join(group_id="a")) is ErrorCode.MEMBER_ID_REQUIRED
    bench.advance(SESSION_MS)
    assert error_of(bench, bench.join(group_id="c")) is ErrorCode.MEMBER_ID_REQUIRED
    bench = Bench(attrs.evolve(NO_DELAY, max_metadata_bytes=100))
    large = (("range", bytes(50)),)
    member_id, _ = bench.enter(protocols=large)
    assert error_of(bench, bench.join(group_id="other", protocols=large)) is ErrorCode.POLICY_VIOLATION
    assert error_of(bench, bench.join(member_id, protocols=(("range", bytes(90)),))) is ErrorCode.NONE
    assert error_of(bench, bench.join(member_id, protocols=(("range", bytes(96)),))) is ErrorCode.POLICY_VIOLATION
    bench.leave(member_id)
    assert error_of(bench, bench.join(group_id="other", protocols=large)) is ErrorCode.MEMBER_ID_REQUIRED


def test_a_full_group_lets_nobody_in_but_its_members_and_members_that_are_gone_do_not_fill_it() -> None:
    bench = Bench(attrs.evolve(NO_DELAY, max_size=2))
    leader, follower = bench.stable(2)
    assert error_of(bench, bench.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error_of(bench, bench.join(follower)) is ErrorCode.NONE
    assert bench.state() is values.GroupState.STABLE
    assert bench.is_waiting(bench.join(leader))
    bench = Bench(attrs.evolve(NO_DELAY, max_size=2))
    bench.stable(2, ["one", "two"], session_timeout_ms=1_000_000)
    bench.leave(values.LeavingMember("", "two"))
    joining = [bench.join(group_instance_id=f"new-{number}", session_timeout_ms=1_000_000) for number in range(3)]
    assert error_of(bench, joining.pop()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.advance(60_000)
    assert [error_of(bench, caller) for caller in joining] == [ErrorCode.NONE, ErrorCode.NONE]
    assert len(bench.member_ids()) == 3
    bench.leave(values.LeavingMember("", "new-1"))
    joining = [bench.join(group_instance_id=f"newer-{number}", session_timeout_ms=1_000_000) for number in range(3)]
    assert [bench.is_waiting(caller) for caller in joining] == [True, True, False]
    assert len(bench.member_ids()) == 4


def test_a_group_that_became_too_large_leaves_the_last_to_join_out() -> None:
    bench = Bench(attrs.evolve(NO_DELAY, max_size=3))
    members = bench.stable(3)
    bench.settings = attrs.evolve(NO_DELAY, max_size=2)
    bench.restart()
    assert bench.state() is values.GroupState.PREPARING_REBALANCE
    callers = [bench.join(each) for each in members]
    assert [error_of(bench, caller) for caller in callers] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert bench.member_ids() == members[:2]


@pytest.mark.parametrize("changes", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}])
def test_who_has_another_protocol_type_or_no_protocol_in_common_is_refused(bench: Bench, changes: dict[str, object]) -> None:
    for key in changes:
        nothing = {key: "" if key == "protocol_type" else ()}
        assert error_of(bench, bench.join(group_id="empty", **nothing)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    _, follower = bench.stable(2)
    assert error_of(bench, bench.join(**changes)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(bench, bench.join(follower, **changes)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state() is values.GroupState.STABLE
    assert bench.heartbeat(follower, 2) is ErrorCode.NONE


def test_the_protocol_is_the_one_that_most_members_like_best_of_those_that_all_speak() -> None:
    bench = Bench(values.GroupSettings(initial_rebalance_delay_ms=3_000))
    likes = ["range sticky all", "sticky all", "all sticky", "sticky range all"]
    entered = [bench.enter(protocols=tuple((name, name.encode()) for name in each.split())) for each in likes]
    bench.advance(60_000)
    answers = [bench.joined(caller) for _, caller in entered]
    assert {answer.protocol for answer in answers} == {"sticky"}
    assert [member.metadata for member in answers[0].members] == [b"sticky"] * 4


def test_a_member_that_leaves_takes_its_vote_along(bench: Bench) -> None:
    member_id, _ = bench.enter(protocols=(("range", b""), ("sticky", b""), ("sticky", b"named twice")))
    other, caller = bench.enter(protocols=(("range", b""),))
    bench.join(member_id, protocols=(("range", b""), ("sticky", b"")))
    assert bench.joined(caller).protocol == "range"
    assert error_of(bench, bench.join(protocols=(("sticky", b""),))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    bench.leave(other)
    assert error_of(bench, bench.join(protocols=(("sticky", b""),))) is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("protocols", [(("range", b"more"),), (("range", b"topics"), ("sticky", b""))])
def test_a_follower_gets_the_generation_unless_it_changes(bench: Bench, protocols: tuple[tuple[str, bytes], ...]) -> None:
    leader, follower = bench.stable(2)
    answer = bench.joined(bench.join(follower))
    assert (answer.generation, answer.leader, answer.members, answer.protocol) == (2, leader, (), "range")
    assert bench.state() is values.GroupState.STABLE
    assert bench.synced(bench.sync(follower, 2)).assignment == follower.encode()
    caller = bench.join(follower, protocols=protocols)
    assert bench.is_waiting(caller)
    leading = bench.joined(bench.join(leader))
    assert leading.generation == 3
    assert [each.metadata for each in leading.members] == [b"topics", protocols[0][1]]


def test_who_joins_again_while_the_assignment_is_awaited_gets_the_same_answer_unless_it_changed(bench: Bench) -> None:
    leader, caller = bench.enter()
    again = bench.joined(bench.join(leader))
    assert again == bench.joined(caller)
    assert [each.member_id for each in again.members] == [leader]
    assert bench.state() is values.GroupState.COMPLETING_REBALANCE
    assert bench.joined(bench.join(leader, protocols=(("range", b"other"),))).generation == 2


def test_who_joins_twice_is_answered_twice(bench: Bench) -> None:
    """The first call is over for its client: an answer must not be left to somebody who is gone, nor be missing."""
    leader, follower = bench.stable(2)
    first, second = bench.join(leader), bench.join(leader)
    assert error_of(bench, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.is_waiting(second)
    bench.join(follower)
    assert error_of(bench, second) is ErrorCode.NONE


def test_a_rebalance_timeout_that_is_not_said_is_the_session_timeout(bench: Bench) -> None:
    leader, _ = bench.stable(2, rebalance_timeout_ms=-1)
    caller = bench.join(leader, rebalance_timeout_ms=-1)
    bench.advance(SESSION_MS)
    assert bench.joined(caller).generation == 3
    assert bench.member_ids() == [leader]


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
