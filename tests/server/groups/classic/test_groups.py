"""All groups together: commits, what is shown, restarts, deletion, and that nothing is kept for ever. The leader's assignment:
who may bring it, who gets it, and that it is stored before anybody has it."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerProtocolSubscription,
    GroupMetadataValue,
    MemberMetadata,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.groups.classic.values import GroupDescription, MemberDescription, SyncAnswer
from triolog.server.groups.values import CommittingMember, GroupListing, GroupState

from tests.support.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Bench

NOBODY = CommittingMember()


def commit_error(bench: Bench, member: CommittingMember, *, is_transactional: bool = False) -> ErrorCode:
    try:
        bench.groups.check_commit(GROUP, member, is_transactional=is_transactional, now_ms=bench.now_ms)
    except RequestError as exc:
        return exc.code
    return ErrorCode.NONE


@pytest.mark.parametrize("known", [False, True])
def test_a_group_without_members_accepts_commits_without_membership_only(bench: Bench, known: bool) -> None:
    if known:
        bench.leave(*bench.stable(1))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID if known else ErrorCode.ILLEGAL_GENERATION
    for member, expected in (
        (NOBODY, ErrorCode.NONE),
        (CommittingMember(member_id="somebody"), ErrorCode.NONE),
        (CommittingMember(generation=0, member_id="client-0"), unknown),
        (CommittingMember(generation=0, member_id="client-0", version=8), unknown),
        (CommittingMember(generation=0, member_id="client-0", version=9), unknown if known else ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        assert commit_error(bench, member) is expected


def test_a_group_with_members_accepts_commits_of_them_in_their_generation_only(bench: Bench) -> None:
    """Transactions have rules of their own; before TxnOffsetCommit v3 they name no member."""
    leader, follower = bench.stable(2, [None, "two"])
    follower = next(each for each in (leader, follower) if each.startswith("two"))
    assert commit_error(bench, NOBODY) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(bench, NOBODY, is_transactional=True) is ErrorCode.NONE
    for member, expected in (
        (CommittingMember(generation=2, member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (CommittingMember(generation=-1, member_id=leader), ErrorCode.ILLEGAL_GENERATION),
        (CommittingMember(generation=1, member_id=leader), ErrorCode.ILLEGAL_GENERATION),
        (CommittingMember(generation=3, member_id=leader), ErrorCode.ILLEGAL_GENERATION),
        (CommittingMember(generation=2, member_id=leader), ErrorCode.NONE),
        (CommittingMember(generation=2, member_id=follower, group_instance_id="two"), ErrorCode.NONE),
        (CommittingMember(generation=2, member_id=leader, group_instance_id="two"), ErrorCode.FENCED_INSTANCE_ID),
        (CommittingMember(generation=2, member_id=leader, group_instance_id="three"), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert commit_error(bench, member) is commit_error(bench, member, is_transactional=True) is expected


def test_a_refused_commit_says_who_asked_and_where_the_group_is(bench: Bench) -> None:
    bench.stable(1)
    for member, expected in (
        (NOBODY, r"UNKNOWN_MEMBER_ID.*'group'.*'' of generation -1 .* Stable, its generation is 1 and it has 1 members"),
        (CommittingMember(generation=7, member_id="client-0"), r"ILLEGAL_GENERATION: .*'client-0' of generation 7"),
    ):
        with pytest.raises(RequestError, match=expected):
            bench.groups.check_commit(GROUP, member, is_transactional=False, now_ms=bench.now_ms)


def test_members_commit_during_a_rebalance_until_the_next_generation_begins(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    old, new = CommittingMember(generation=2, member_id=leader), CommittingMember(generation=3, member_id=leader)
    bench.join(follower, protocols=(("range", b"new"),))
    assert commit_error(bench, old) is ErrorCode.NONE
    bench.join(leader)
    assert commit_error(bench, old) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(bench, new) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit_error(bench, new, is_transactional=True) is ErrorCode.NONE
    bench.sync(leader, 3)
    for _ in range(3):
        assert commit_error(bench, new) is ErrorCode.NONE
        bench.advance(SESSION_MS - 1)


def test_a_stable_group_shows_its_protocol_and_what_its_members_say_and_have(bench: Bench) -> None:
    leader, other = bench.stable(2, ["one", "two"])
    described = {each.member_id: each for each in bench.groups.describe(GROUP).members}  # type: ignore[union-attr]
    assert described[other] == MemberDescription(
        member_id=other,
        group_instance_id="two",
        client_id="client",
        client_host="/127.0.0.1",
        metadata=b"topics",
        assignment=other.encode(),
    )
    bench.join(leader)
    found = bench.groups.describe(GROUP)
    assert found is not None
    assert (found.state, found.protocol_type, found.protocol) == (GroupState.PREPARING_REBALANCE, "consumer", "")
    assert [each.metadata for each in found.members] == [b"", b""]
    assert bench.groups.describe("other") is None
    bench.enter(group_id="second")
    bench.leave(leader, other)
    assert sorted(bench.listings()) == [
        GroupListing(GROUP, "consumer", GroupState.EMPTY, "classic"),
        GroupListing("second", "consumer", GroupState.COMPLETING_REBALANCE, "classic"),
    ]
    assert GroupDescription(group_id="other").state.value == "Dead"


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    value = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=[])
    return (("range", encode_consumer_protocol(value, 1)),)


def keeps(bench: Bench, topic: str) -> bool:
    """Whether the group's offset of a topic must not be deleted."""
    error = bench.groups.delete_offset_error(GROUP, TopicPartition(topic, 0))
    assert error is None or error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return error is not None


def test_a_group_of_consumers_is_subscribed_to_what_its_members_say(bench: Bench) -> None:
    member_id, _ = bench.enter(protocols=subscription("a", "b"))
    bench.groups.check_delete_offsets(GROUP)
    assert [keeps(bench, topic) for topic in "abc"] == [True, True, False]
    bench.leave(member_id)
    assert not keeps(bench, "a")
    bench.enter(protocols=(("range", b"x"),))
    assert keeps(bench, "a"), "it cannot be known"
    assert bench.groups.delete_offset_error("other", TopicPartition("a", 0)) is None
    member_id, _ = bench.enter(group_id="other", protocol_type="connect", protocols=(("default", b"x"),))
    with pytest.raises(RequestError, match=r"NON_EMPTY_GROUP.*has 1 members"):
        bench.groups.check_delete_offsets("other")
    bench.leave(member_id, group_id="other")
    bench.groups.check_delete_offsets("other")
    assert bench.groups.delete_offset_error("other", TopicPartition("a", 0)) is None


def test_a_group_is_what_it_was_after_a_restart_and_sessions_begin_again(bench: Bench) -> None:
    leader, follower = bench.stable(2)
    before = bench.groups.describe(GROUP)
    bench.advance(SESSION_MS - 1)
    bench.restart()
    assert bench.groups.describe(GROUP) == before
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(follower, 2) is ErrorCode.NONE
    assert bench.synced(bench.sync(leader, 2)).assignment == leader.encode()
    assert bench.joined(bench.join(follower)).leader == leader
    for each in (None, leader, follower):
        bench.join(each) if each else bench.enter()
    assert bench.heartbeat(leader, 3) is ErrorCode.NONE
    bench.restart()
    assert bench.heartbeat(leader, 3) is ErrorCode.ILLEGAL_GENERATION, "a generation that was not stored"
    assert bench.heartbeat(leader, 2) is ErrorCode.NONE
    bench.advance(SESSION_MS)
    assert bench.state() is GroupState.EMPTY


def test_a_record_of_an_old_kafka_is_restored(bench: Bench) -> None:
    """Version 0 has neither a rebalance timeout nor a timestamp. A group without a leader rebalances: it may have been a
    consumer group."""
    member = MemberMetadata(
        member_id="old", client_id="c", client_host="/h", session_timeout=7_000, subscription=b"s", assignment=b"a"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", members=[member])
    bench.take(bench.groups.restore(GROUP, value, bench.now_ms))
    assert bench.heartbeat("old", 4) is ErrorCode.REBALANCE_IN_PROGRESS
    caller = bench.join("old", protocols=(("range", b"s"),))
    assert bench.joined(caller).leader == "old"
    bench.advance(REBALANCE_MS)
    bench.take(bench.groups.restore("other", attrs.evolve(value, leader="nobody"), bench.now_ms))
    assert bench.groups.next_deadline_ms == bench.now_ms + 7_000


def test_only_an_empty_group_of_which_nothing_is_being_stored_can_be_deleted(bench: Bench) -> None:
    assert bench.groups.begin_delete("never was")
    other = bench.stable(1, group_id="never was")
    bench.groups.end_delete("never was", is_deleted=True)
    assert bench.member_ids("never was") == other, "it came to be while its offsets were deleted"
    [member_id] = bench.stable(1)
    assert not bench.groups.begin_delete(GROUP)
    bench.stores_at_once = False
    bench.leave(member_id)
    assert bench.state() is GroupState.EMPTY
    assert not bench.groups.begin_delete(GROUP)
    bench.store()
    assert bench.groups.begin_delete(GROUP)
    assert not bench.groups.begin_delete(GROUP)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_group_that_is_being_deleted_is_closed_until_that_is_decided(bench: Bench, is_deleted: bool) -> None:
    bench.leave(*bench.stable(1))
    bench.join()
    assert bench.groups.begin_delete(GROUP)
    assert (bench.state(), bench.groups.next_deadline_ms) == (GroupState.DEAD, None)
    assert commit_error(bench, NOBODY) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.joined(bench.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer, outcome = bench.groups.leave(GROUP, [], bench.now_ms)
    assert (answer.error, outcome.answers, outcome.stores) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, (), ())
    bench.groups.end_delete(GROUP, is_deleted=is_deleted)
    bench.groups.end_delete("never was", is_deleted=is_deleted)
    assert bench.joined(bench.enter()[1]).generation == (1 if is_deleted else 3)


def test_a_group_is_forgotten_unless_somebody_is_about_to_join(bench: Bench) -> None:
    member_id, _ = bench.enter()
    bench.leave(member_id)
    assert bench.groups.next_deadline_ms is None, "no assignment is awaited"
    assert bench.groups.idle_groups() == [GROUP]
    bench.join()
    assert bench.groups.idle_groups() == []
    assert not bench.groups.is_expirable(GROUP)
    bench.groups.forget(GROUP)
    assert len(bench.groups) == 1
    bench.advance(SESSION_MS)
    bench.groups.forget(GROUP)
    assert len(bench.groups) == 0
    assert bench.groups.is_expirable(GROUP)


@pytest.mark.parametrize("fails", [False, True])
def test_a_late_answer_of_the_log_does_not_bring_a_forgotten_group_back(fails: bool) -> None:
    bench = Bench(stores_at_once=False)
    member_id, _ = bench.enter()
    bench.sync(member_id, 1)
    bench.leave(member_id)
    assert len(bench.waiting_stores) == 2
    for _ in range(2):
        (bench.fail_store if fails else bench.store)()
    assert bench.state() is GroupState.EMPTY
    bench.groups.forget(GROUP)
    assert len(bench.groups) == 0


def test_that_a_group_is_empty_is_stored_again_where_it_could_not_be(bench: Bench) -> None:
    """Its offsets would not expire before the next restart."""
    [member_id] = bench.stable(1)
    bench.stores_at_once = False
    bench.leave(member_id)
    bench.take(bench.groups.store_again())
    assert len(bench.waiting_stores) == 1
    bench.fail_store()
    bench.take(bench.groups.store_again())
    bench.store()
    assert bench.log[-1].value.members == []
    bench.take(bench.groups.store_again())
    assert bench.waiting_stores == []


def test_nothing_is_left_of_members_that_come_and_go(bench: Bench) -> None:
    for number in range(50):
        bench.stable(2, ["one"], group_id=f"stable-{number}")
        bench.enter(group_id=f"joining-{number}")
        bench.join(group_id=f"pending-{number}")
    bench.advance(10 * REBALANCE_MS)
    assert {each.state for each in bench.listings()} == {GroupState.EMPTY}
    assert bench.groups.next_deadline_ms is None
    assert bench.groups._usage.metadata_bytes == 0
    for each in list(bench.groups.idle_groups()):
        bench.groups.forget(each)
    assert len(bench.groups) == 0


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
