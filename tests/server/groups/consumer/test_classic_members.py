"""Members of a consumer group that use the classic protocol: their epochs, partitions and timers; and both conversions."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.coordinator.classic_group_records import decode_group_metadata_value
from triolog.protocol.coordinator.consumer_group_records import (
    CONSUMER_GROUP_RECORDS,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from triolog.protocol.coordinator.offsets import GroupMetadataKey
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.config.values import MigrationPolicy
from triolog.server.groups.assigned.values import AssignedGroupSettings
from triolog.server.groups.classic.values import Heartbeat, Join
from triolog.server.groups.consumer.member import MemberState
from triolog.server.groups.values import CommittingMember, GroupState

from tests.support.consumer_groups import GROUP, REBALANCE_TIMEOUT_MS, Consumer, Topics
from tests.support.mixed_groups import COOPERATIVE, EAGER, SESSION_MS, ClassicClient, Mixed, subscription

PARTITIONS = 4
RECORD = GroupMetadataKey(GROUP).encode()


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.create("t", PARTITIONS)
    return topics


@pytest.fixture
def driven(topics: Topics) -> Mixed:
    return Mixed(topics)


def classic_client(driven: Mixed, **fields: Any) -> ClassicClient:
    return ClassicClient(driven=driven, topic_names=("t",), **{"protocol": COOPERATIVE, **fields})


def consumer(driven: Any, member_id: str = "consumer", **fields: Any) -> Consumer:
    return Consumer(driven=driven, member_id=member_id, topic_names=("t",), topic_regex="", **fields)


def settle(*clients: ClassicClient | Consumer, rounds: int = 30) -> None:
    for _ in range(rounds):
        for each in clients:
            if isinstance(each, ClassicClient):
                each.step()
            else:
                each.beat()


def mixed(driven: Mixed, **fields: Any) -> tuple[ClassicClient, Consumer]:
    """A stable consumer group with a member of each protocol."""
    classic, member = classic_client(driven, **fields), consumer(driven)
    settle(classic)
    member.join()
    settle(classic, member)
    assert len(classic.owned) == len(member.owned) == PARTITIONS // 2
    return classic, member


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_partitions_move_to_the_first_consumer_member_and_back(driven: Mixed, protocol: str) -> None:
    classic, member = mixed(driven, protocol=protocol)
    assert driven.kind == "consumer"
    assert driven.groups.known(GROUP).state is GroupState.STABLE
    member.leave()
    assert driven.kind == "classic"
    settle(classic)
    assert classic.owned == driven.topics.all_of("t")
    assert classic.errors == []


def test_a_partition_is_kept_until_the_classic_member_joins_without_it(driven: Mixed) -> None:
    classic, member = classic_client(driven), consumer(driven)
    settle(classic)
    member.join()
    group = driven.groups.known(GROUP)
    assert group.members[classic.member_id].held == driven.topics.all_of("t")
    classic.step()  # is told to join
    classic.step()  # joins with all that it has
    known = driven.groups.known(GROUP).members[classic.member_id]
    assert (known.state, known.held, known.epoch) == (MemberState.UNREVOKED_PARTITIONS, driven.topics.all_of("t"), 1)
    member.beat()
    assert member.owned == frozenset()
    settle(classic, member)
    assert member.owned == driven.topics.all_of("t") - classic.owned


def test_a_partition_that_a_member_is_giving_up_stays_its_own_over_both_conversions(driven: Mixed) -> None:
    classic, member = classic_client(driven), consumer(driven)
    settle(classic)
    member.join()
    classic.step()
    classic.join()  # and does not know yet what to give up
    member.leave()
    assert driven.kind == "classic"
    consumer(driven, "next").join()
    assert driven.groups.known(GROUP).members[classic.member_id].held == classic.owned == driven.topics.all_of("t")


def test_a_classic_member_is_told_to_join_when_all_that_it_waits_for_is_free(driven: Mixed) -> None:
    member, classic = consumer(driven, is_slow=True), classic_client(driven)
    member.join()
    settle(classic)
    assert (classic.is_stable, classic.owned) == (True, frozenset())
    member.beat()  # is told to give up half
    settle(classic)
    assert classic.owned == frozenset()
    member.let_go()
    member.beat()
    settle(classic, rounds=4)
    assert len(classic.owned) == PARTITIONS // 2


def test_a_classic_member_commits_at_an_earlier_epoch_what_it_has_had_since_then(driven: Mixed) -> None:
    """KIP-1251, with the errors of its protocol. Kafka 4.3.1 answers so."""
    classic, _ = mixed(driven)
    group, topic_id = driven.groups.known(GROUP), driven.topics.found["t"].topic_id
    assert (classic.generation, group.members[classic.member_id].epoch) == (2, 2)

    def commit(partition: tuple[bytes, int], generation: int) -> ErrorCode:
        who = CommittingMember(generation=generation, member_id=classic.member_id, version=8)
        try:
            group.check_commit(who, [TopicPartition("t", partition[1])], driven.topics, is_transactional=False)
        except RequestError as exc:
            return ErrorCode(exc.code)
        return ErrorCode.NONE

    kept, gone = min(classic.owned), min(driven.topics.all_of("t") - classic.owned)
    assert kept[0] == topic_id
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert [commit(kept, generation) for generation in range(-1, 4)] == [illegal, illegal, 0, 0, illegal]
    assert [commit(gone, generation) for generation in range(-1, 4)] == [illegal, illegal, illegal, 0, illegal]
    group.check_fetch(classic.member_id, 2)
    with pytest.raises(RequestError) as refused:
        group.check_fetch(classic.member_id, 1)
    assert refused.value.code is illegal


def test_records_of_a_mixed_group_are_those_of_kafka(driven: Mixed) -> None:
    classic, member = mixed(driven, instance_id="static")
    driven.compact()
    [said] = [
        CONSUMER_GROUP_RECORDS.decode_value(key, data)
        for key, data in ((CONSUMER_GROUP_RECORDS.decode_key(key), data) for key, data in driven.log)
        if isinstance(key, ConsumerGroupMemberMetadataKey) and key.member_id == classic.member_id and data is not None
    ]
    assert isinstance(said, ConsumerGroupMemberMetadataValue)
    assert (said.instance_id, said.subscribed_topic_names, said.subscribed_topic_regex) == ("static", ["t"], "")
    assert said.classic_member_metadata is not None
    assert said.classic_member_metadata.session_timeout_ms == SESSION_MS
    [protocol] = said.classic_member_metadata.supported_protocols
    assert (protocol.name, protocol.metadata) == (COOPERATIVE, subscription(("t",), classic.owned, driven.topics))
    assert dict(driven.log).get(RECORD) is None
    member.leave()
    driven.compact()
    assert all(data is None for key, data in driven.log if key != RECORD)
    kept = decode_group_metadata_value(dict(driven.log)[RECORD] or b"")
    assert (kept.protocol_type, kept.protocol, kept.generation) == ("consumer", COOPERATIVE, classic.generation)
    assert [(each.member_id, each.session_timeout) for each in kept.members] == [(classic.member_id, SESSION_MS)]


@pytest.mark.parametrize("has_left", [False, True])
def test_a_restart_finds_the_group_as_it_was(driven: Mixed, has_left: bool) -> None:
    classic, member = mixed(driven)
    if has_left:
        member.leave()
    driven.restart()
    clients = (classic,) if has_left else (classic, member)
    assert driven.kind == ("classic" if has_left else "consumer")
    settle(*clients)
    assert classic.errors == []
    owned = [partition for each in clients for partition in each.owned]
    assert sorted(owned) == sorted(driven.topics.all_of("t")), "what the one that left had is somebody's again"


def test_a_silent_classic_member_is_removed_after_its_own_session(driven: Mixed) -> None:
    classic, member = mixed(driven)
    for _ in range(5):
        driven.pass_time(driven.now_ms + SESSION_MS // 5 - 1)
        member.beat()
    assert driven.member_ids() == {classic.member_id, "consumer"}
    driven.pass_time(driven.now_ms + 5)
    assert driven.member_ids() == {"consumer"}
    settle(member)
    assert member.owned == driven.topics.all_of("t")


def beat(classic: ClassicClient) -> ErrorCode:
    return classic.driven.beat(Heartbeat(group_id=GROUP, generation=classic.generation, member_id=classic.member_id))


def test_a_classic_member_that_does_not_join_again_in_time_is_removed(driven: Mixed) -> None:
    classic, member = mixed(driven)
    consumer(driven, "second").join()
    told_ms = driven.now_ms
    for _ in range(5):
        assert beat(classic) is ErrorCode.REBALANCE_IN_PROGRESS
        driven.pass_time(driven.now_ms + REBALANCE_TIMEOUT_MS // 6)
        member.beat()
    driven.pass_time(told_ms + REBALANCE_TIMEOUT_MS - 1)
    assert classic.member_id in driven.member_ids()
    driven.pass_time(told_ms + REBALANCE_TIMEOUT_MS)
    assert classic.member_id not in driven.member_ids()
    assert beat(classic) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_joins_and_does_not_sync_in_time_is_removed(driven: Mixed) -> None:
    classic, member = mixed(driven)
    classic.join()  # and no sync
    joined_ms = driven.now_ms
    for _ in range(5):
        assert beat(classic) is ErrorCode.NONE
        driven.pass_time(driven.now_ms + REBALANCE_TIMEOUT_MS // 6)
        member.beat()
    driven.pass_time(joined_ms + REBALANCE_TIMEOUT_MS)
    assert classic.member_id not in driven.member_ids()


def test_a_timer_that_waited_for_the_lock_is_over_when_the_member_has_joined(driven: Mixed) -> None:
    classic, _ = mixed(driven)
    classic.join()
    driven.now_ms += REBALANCE_TIMEOUT_MS
    [key] = [key for key in driven.groups.due(driven.now_ms) if key.kind.name == "SYNC"]
    classic.step()
    assert driven.groups.expire(key, driven.now_ms) is None


def test_a_member_that_changes_to_the_consumer_protocol_has_its_timers(driven: Mixed) -> None:
    """Its heartbeats count from now on, and its classic timers no longer."""
    classic, _ = mixed(driven)
    classic.join()
    changed = consumer(driven, classic.member_id)
    changed.join()
    assert driven.groups._armed == set()
    assert not driven.groups.known(GROUP).members[classic.member_id].is_classic


def test_a_downgrade_counts_the_memory_of_protocols_among_those_of_classic_groups(driven: Mixed) -> None:
    classic, member = classic_client(driven), consumer(driven)
    settle(classic)
    before = driven.classic._usage.metadata_bytes
    assert before > 0
    member.join()
    assert driven.classic._usage.metadata_bytes == 0
    settle(classic, member)
    member.leave()
    assert driven.classic._usage.metadata_bytes > 0
    settle(classic)
    classic.leave()
    assert driven.classic._usage.metadata_bytes == 0


def test_a_group_in_the_middle_of_a_rebalance_changes_its_protocol(driven: Mixed) -> None:
    first, second = classic_client(driven), classic_client(driven)
    settle(first)
    second.step()
    second.step()
    assert second.waits_for is not None, "it waits for the first one to join again"
    member = consumer(driven)
    member.join()
    assert driven.answers[second.waits_for].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driven.member_ids() == {first.member_id, second.member_id, "consumer"}
    settle(first, second, member)
    assert first.errors == second.errors == []
    held = [partition for each in (first, second, member) for partition in each.owned]
    assert sorted(held) == sorted(driven.topics.all_of("t"))


def test_a_conversion_that_cannot_be_stored_has_not_happened(driven: Mixed) -> None:
    first, second = classic_client(driven), classic_client(driven)
    settle(first)
    second.step()
    second.step()
    driven.fails = True
    with pytest.raises(RequestError):
        consumer(driven).join()
    driven.fails = False
    assert (driven.kind, driven.member_ids()) == ("classic", {first.member_id, second.member_id})
    settle(first, second)
    assert len(first.owned | second.owned) == PARTITIONS


def test_timers_of_a_group_that_is_being_converted_wait(driven: Mixed) -> None:
    classic = classic_client(driven)
    settle(classic)
    driven.classic.begin_conversion(GROUP)
    driven.pass_time(driven.now_ms + SESSION_MS)
    assert driven.member_ids() == {classic.member_id}
    driven.classic.end_conversion(GROUP, is_converted=False)
    driven.pass_time(driven.now_ms + 1_000)
    assert driven.member_ids() == set()


def test_a_large_group_stays_classic(topics: Topics) -> None:
    driven = Mixed(topics, AssignedGroupSettings(max_size=1))
    first, second = classic_client(driven), classic_client(driven)
    settle(first, second)
    with pytest.raises(RequestError, match="exceeds the consumer group maximum size") as refused:
        consumer(driven).join()
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driven.kind == "classic"


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_the_policy_decides_on_conversions(topics: Topics, policy: MigrationPolicy, upgrades: bool, downgrades: bool) -> None:
    settings = AssignedGroupSettings(migration_policy=policy)
    driven, member = Mixed(topics, settings), consumer(None)
    classic, member.driven = classic_client(driven), driven
    settle(classic)
    if not upgrades:
        with pytest.raises(RequestError, match="online upgrade is disabled"):
            member.join()
        classic.leave()
    member.join()
    later = classic_client(driven)
    settle(later, member)
    member.leave()
    assert driven.kind == ("classic" if downgrades else "consumer")


def test_a_join_without_protocols_is_inconsistent_also_when_nobody_uses_the_classic_protocol(driven: Mixed) -> None:
    consumer(driven).join()
    join = {"group_id": GROUP, "protocol_type": "consumer", "session_timeout_ms": SESSION_MS}
    token = driven.join(Join(protocols=(), **join))  # type: ignore[arg-type]
    assert driven.answers[token].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
