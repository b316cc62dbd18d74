"""Who may join a group: member ids, protocols, limits, and joining again."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic import values

from tests.support.group_bench import SESSION_MS, Bench

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
def test_a_follower_gets_the_current_generation_unless_it_changes(
    bench: Bench, protocols: tuple[tuple[str, bytes], ...]
) -> None:
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
