"""What single heartbeats lead to, and time (the rest: `test_streams_model`, and over the wire `kafka/test_streams_groups`)."""

from __future__ import annotations

import pytest
from triolog.protocol.coordinator import streams_group_records as records
from triolog.protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS
from triolog.protocol.errors import RequestError
from triolog.server.groups.streams.member import MemberState
from triolog.server.groups.streams.values import NO_TASKS, HeldTasks, StreamsTimes, TaskId, Tasks
from triolog.server.groups.values import GroupState

from tests.support.consumer_groups import Topics
from tests.support.streams_groups import GROUP, REBALANCE_TIMEOUT_MS, DrivenStreamsGroups, subtopology, topology

PLAIN = topology(subtopology("0", "words"))


@pytest.fixture
def driven() -> DrivenStreamsGroups:
    topics = Topics()
    topics.create("words", 4)
    return DrivenStreamsGroups(topics)


def test_who_does_not_give_up_in_time_is_out(driven: DrivenStreamsGroups) -> None:
    driven.join("a", PLAIN)
    driven.join("b", PLAIN)
    driven.heartbeat("a", 2)
    assert driven.group.members["a"].state is MemberState.UNREVOKED_TASKS
    driven.times = StreamsTimes(session_timeout_ms=10 * REBALANCE_TIMEOUT_MS, initial_rebalance_delay_ms=0)
    driven.heartbeat("a", 2)
    driven.heartbeat("b", 3)
    driven.pass_time(driven.now_ms + REBALANCE_TIMEOUT_MS - 1)
    assert set(driven.group.members) == {"a", "b"}
    driven.pass_time(driven.now_ms + 1)
    assert set(driven.group.members) == {"b"}


def test_an_epoch_is_counted_for_each_task(driven: DrivenStreamsGroups) -> None:
    driven.join("a", PLAIN)
    assert set(driven.group.members["a"].assigned.active.values()) == {2}
    driven.heartbeat("a", -1)
    driven.join("b", PLAIN)
    driven.join("c", PLAIN)
    told = driven.heartbeat("b", 4)
    assert told.assignment is not None
    driven.heartbeat("b", 4, told.assignment)
    driven.heartbeat("c", 5)
    since = {name: set(driven.group.members[name].assigned.active.values()) for name in "bc"}
    assert since == {"b": {4}, "c": {5}}


def test_a_group_that_waits_for_members_assigns_when_that_is_over(driven: DrivenStreamsGroups) -> None:
    driven.times = StreamsTimes(initial_rebalance_delay_ms=3_000)
    assert driven.join("a", PLAIN).assignment == NO_TASKS
    driven.pass_time(1_000)
    assert driven.join("b", PLAIN).assignment == NO_TASKS
    driven.pass_time(2_999)
    assert driven.heartbeat("a", 1).statuses
    assert driven.group.state is GroupState.ASSIGNING
    driven.pass_time(3_000)
    assert driven.group.assignment_epoch == driven.group.epoch == 3
    told = [driven.heartbeat(name, 1).assignment for name in "ab"]
    assert [len(each.active) for each in told if each is not None] == [2, 2]


def test_a_state_that_a_newer_program_wrote_ends_with_the_next_join(driven: DrivenStreamsGroups) -> None:
    driven.join("a", PLAIN)
    value = driven.group.members["a"].current_value()
    value.state = 99
    key = records.StreamsGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    driven.log.append(STREAMS_GROUP_RECORDS.encode((key, value)))
    driven.restart()
    assert driven.group.members["a"].state is MemberState.UNKNOWN
    with pytest.raises(RequestError, match=r"^FENCED_MEMBER_EPOCH"):
        driven.heartbeat("a", 2)
    driven.join("a", PLAIN)
    assert driven.group.members["a"].state is MemberState.STABLE


def test_records_without_epochs_of_tasks_count_from_the_members(driven: DrivenStreamsGroups) -> None:
    driven.join("a", PLAIN)
    value = driven.group.members["a"].current_value()
    value.member_epoch, value.previous_member_epoch, value.state = 7, 6, 1
    ids = records.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[0, 1], assignment_epochs=[3])
    value.active_tasks = [ids]
    member = driven.group.members["a"].with_current(value)
    assert member.assigned == HeldTasks({TaskId("0", 0): 7, TaskId("0", 1): 7})


def test_a_description_has_the_counts_that_a_refused_heartbeat_found(driven: DrivenStreamsGroups) -> None:
    """As in Kafka: the topics came, and the first who asks afterwards claims a task that is not there."""
    driven.join("a", topology(subtopology("0", "late", changelogs=["kept"])))
    driven.topics.create("late", 3)
    driven.topics.create("kept", 3)
    with pytest.raises(RequestError, match=r"^INVALID_REQUEST"):
        driven.heartbeat("a", 2, Tasks(active=frozenset({TaskId("9", 0)})))
    assert driven.group.state is GroupState.NOT_READY
    [part] = driven.group.describe().subtopologies
    assert [each.partitions for each in part.state_changelog_topics] == [3]


def test_a_group_is_removed_without_a_trace(driven: DrivenStreamsGroups) -> None:
    driven.join("a", PLAIN)
    with pytest.raises(RequestError, match=r"^NON_EMPTY_GROUP"):
        driven.groups.plan_removal(GROUP)
    driven.heartbeat("a", -1)
    driven.remove()
    assert len(driven.replayed()) == len(driven.groups.timers) == 0
    driven.compact()
    assert all(value is None for _, value in driven.log)
