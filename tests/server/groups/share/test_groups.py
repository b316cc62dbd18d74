"""Heartbeats of share groups, step by step. Epochs, codes and messages are those that Apache Kafka 4.3.1 answered to the same
requests, but that it makes assignments at most once in a second. The assignor `simple`, as properties of any assignment.
Histories of a share group: members that come, go, die and lose answers, topics that change, states that come late, restarts.
**When everybody has spoken twice and all states are there, every partition of a subscribed topic has a reader who is
subscribed to it, and everybody knows what he has.** At any time the log, compacted or not, says what memory says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from triolog.protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.groups.assigned.values import AssignedGroupSettings, HeartbeatAnswer, MemberTimes, Partitions
from triolog.server.groups.consumer.assignors import Subscriber
from triolog.server.groups.share.groups import assign_simple
from triolog.server.groups.values import GroupState

from tests.server.groups.histories import SESSION_MS, Client, MemberHistories
from tests.support.consumer_groups import Topics
from tests.support.share_groups import GROUP, DrivenShareGroups


@pytest.fixture
def driven() -> DrivenShareGroups:
    topics = Topics()
    topics.create("t", 3)
    topics.create("u", 1)
    return DrivenShareGroups(topics)


def refused(driven: DrivenShareGroups, *arguments: Any, **more: Any) -> tuple[ErrorCode, str]:
    written = len(driven.log)
    with pytest.raises(RequestError) as caught:
        driven.heartbeat(*arguments, **more)
    assert len(driven.log) == written
    assert isinstance(caught.value.code, ErrorCode)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("restarts", [False, True])
def test_the_first_member_has_nothing_until_there_are_share_states(driven: DrivenShareGroups, restarts: bool) -> None:
    answer = driven.heartbeat("a", 0, ["t"])
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (2, 5_000, frozenset())
    if restarts:
        driven.restart()
    assert driven.groups.waiting_states(GROUP) == driven.topics.all_of("t")
    assert driven.heartbeat("a", 2).assignment is None
    driven.make_states()
    answer = driven.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (3, driven.topics.all_of("t"))
    assert driven.heartbeat("a", 3).assignment is None


def test_members_share_partitions_when_there_are_more_of_them(driven: DrivenShareGroups) -> None:
    driven.join("a", "u")
    assert driven.join("b", "u").assignment == driven.topics.all_of("u")
    assert driven.heartbeat("a", 3).assignment is None
    described = driven.group.describe()
    assert [each.assignment for each in described.members] == [driven.topics.all_of("u")] * 2
    assert (described.state, described.group_epoch, described.assignment_epoch) == (GroupState.STABLE, 4, 4)


def test_a_member_reads_what_it_subscribes_to_as_topics_come_and_go(driven: DrivenShareGroups) -> None:
    assert driven.join("a", "u", "later").assignment == driven.topics.all_of("u")
    driven.topics.create("later", 2)
    driven.topics.grow("u", 2)
    assert driven.heartbeat("a", 3).assignment is None
    assert driven.make_states() == driven.topics.all_of("later") | (
        driven.topics.all_of("u") - {(driven.topics.found["u"].topic_id, 0)}
    )
    assert driven.heartbeat("a", 4).assignment == driven.topics.all_of("later") | driven.topics.all_of("u")
    driven.topics.delete("later")
    assert driven.heartbeat("a", 5).assignment == driven.topics.all_of("u")
    assert driven.group.states.known == driven.topics.all_of("u")
    driven.topics.create("later", 1)
    driven.heartbeat("a", 6)
    assert driven.make_states() == driven.topics.all_of("later")
    assert driven.heartbeat("a", 7).assignment == driven.topics.all_of("later") | driven.topics.all_of("u")
    answer = driven.heartbeat("a", 8, ["t"])
    assert (answer.member_epoch, answer.assignment) == (9, frozenset())
    driven.make_states()
    assert driven.heartbeat("a", 9).assignment == driven.topics.all_of("t")


def test_a_heartbeat_without_news_writes_nothing(driven: DrivenShareGroups) -> None:
    driven.join("a", "t")
    written = len(driven.log)
    again = driven.heartbeat("a", 0, ["t"])
    assert (again.member_epoch, again.assignment) == (3, driven.topics.all_of("t")), "who joins again is the same member"
    assert driven.heartbeat("a", 2).member_epoch == 3, "the epoch before is right too"
    driven.heartbeat("a", 3)
    driven.heartbeat("a", 3, ["t", "t"])
    assert len(driven.log) == written
    driven.heartbeat("a", 3, rack_id="rack")
    assert len(driven.log) == written + 1


@pytest.mark.parametrize(
    ("member_id", "epoch", "names", "more", "message"),
    [
        ("", -5, None, {"group_id": ""}, "a member id has 1 to 36 characters, this one has 0"),
        ("m" * 37, 0, ["t"], {}, "a member id has 1 to 36 characters, this one has 37"),
        (" ", 0, ["t"], {"group_id": " "}, "MemberId can't be empty."),
        ("m", -2, None, {"group_id": " ", "rack_id": ""}, "GroupId can't be empty."),
        ("m", -2, None, {"rack_id": " "}, "RackId can't be empty."),
        ("m", -2, None, {}, "MemberEpoch is invalid."),
        ("m", 0, None, {}, "SubscribedTopicNames must be set in first request."),
        ("m", 0, [], {}, "SubscribedTopicNames must be set in first request."),
    ],
)
def test_what_says_too_little_is_refused(
    driven: DrivenShareGroups, member_id: str, epoch: int, names: list[str] | None, more: dict[str, str], message: str
) -> None:
    assert refused(driven, member_id, epoch, names, **more) == (ErrorCode.INVALID_REQUEST, message)


def test_unknown_groups_members_and_epochs_are_refused(driven: DrivenShareGroups) -> None:
    assert refused(driven, "a", 3) == (ErrorCode.GROUP_ID_NOT_FOUND, "Share group group not found.")
    assert refused(driven, "a", -1) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group group not found.")
    driven.join("a", "t")
    for epoch in (3, -1):
        assert refused(driven, "b", epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group group.")
    assert refused(driven, "a", 4) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The share group member has a greater member epoch (4) than the one known by the group coordinator (3). The member "
        "must abandon all its partitions and rejoin.",
    )
    assert refused(driven, "a", 1) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The share group member has a smaller member epoch (1) than the one known by the group coordinator (3), and it does "
        "not match the previous member epoch (2). The member must abandon all its partitions and rejoin.",
    )


def test_a_full_group_lets_nobody_in_but_those_who_are(driven: DrivenShareGroups) -> None:
    driven.groups.settings = AssignedGroupSettings(max_size=1, max_groups=1)
    driven.join("a", "t")
    code, message = refused(driven, "b", 0, ["t"])
    assert (code, message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 1 members.",
    )
    assert driven.heartbeat("a", 0, ["t"]).member_epoch == 3
    assert refused(driven, "b", 0, ["t"], group_id="other")[0] is ErrorCode.POLICY_VIOLATION


def test_who_leaves_is_out_and_the_others_share_what_he_had(driven: DrivenShareGroups) -> None:
    driven.join("a", "t")
    driven.join("b", "t")
    assert driven.heartbeat("a", 3).assignment < driven.topics.all_of("t")
    answer = driven.heartbeat("b", -1)
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (-1, 0, None)
    assert driven.heartbeat("a", 4).assignment == driven.topics.all_of("t")
    driven.heartbeat("a", -1)
    described = driven.group.describe()
    assert (described.state, described.members) == (GroupState.EMPTY, ())
    assert described.group_epoch == described.assignment_epoch + 1
    assert driven.group.metadata_hash == 0


def test_a_silent_member_is_out_when_its_session_ends(driven: DrivenShareGroups) -> None:
    driven.groups.times_of = lambda group: MemberTimes(1_000, 10_000 if group == GROUP else 1)
    driven.join("a", "t")
    driven.join("b", "t")
    driven.pass_time(9_999)
    driven.heartbeat("b", 4)
    driven.pass_time(10_000)
    assert set(driven.group.members) == {"b"}
    assert driven.heartbeat("b", 4).assignment == driven.topics.all_of("t")
    driven.pass_time(60_000)
    assert not driven.group.members
    assert driven.groups.next_deadline_ms is None


def test_an_administrator_makes_states_of_a_group_that_nobody_has_joined(driven: DrivenShareGroups) -> None:
    topic_id = driven.topics.found["t"].topic_id
    driven.commit(driven.groups.plan_states(GROUP, frozenset({(topic_id, 1)}), {topic_id: "t"}, 0))
    [(key, _)] = driven.log
    assert type(SHARE_GROUP_RECORDS.decode_key(key)).__name__ == "ShareGroupStatePartitionMetadataKey"
    driven.restart()
    assert driven.make_states() == {(topic_id, 1)}
    described = driven.group.describe()
    assert (described.state, described.group_epoch, described.assignment_epoch) == (GroupState.EMPTY, 1, 1)
    assert driven.heartbeat("a", 0, ["t"]).assignment == {(topic_id, 1)}
    with pytest.raises(RequestError, match=r"^NON_EMPTY_GROUP.*The group is not empty\."):
        driven.groups.plan_states(GROUP, frozenset({(topic_id, 0)}), {topic_id: "t"}, 0)


def test_states_of_a_topic_are_deleted_in_two_steps_and_a_removed_group_is_gone_from_the_log(driven: DrivenShareGroups) -> None:
    driven.join("a", "t", "u")
    topic_id = driven.topics.found["t"].topic_id
    for plan in (
        lambda: driven.groups.plan_deletion(GROUP, frozenset({topic_id}), 0),
        lambda: driven.groups.plan_removal(GROUP),
    ):
        with pytest.raises(RequestError, match="not empty"):
            plan()
    driven.heartbeat("a", -1)
    driven.commit(driven.groups.plan_deletion(GROUP, frozenset({topic_id, b"?" * 16}), 0))
    assert (driven.group.states.deleting, driven.group.states.known) == ({topic_id}, driven.topics.all_of("u"))
    driven.commit(driven.groups.states_gone(GROUP, frozenset({topic_id}), 0))
    assert not driven.group.states.deleting
    assert driven.group.states.names == {driven.topics.found["u"].topic_id: "u"}
    driven.remove()
    assert not len(driven.groups)
    driven.restart()
    assert GROUP not in driven.groups
    driven.compact()
    assert all(data is None for _, data in driven.log)


def test_the_first_heartbeat_writes_what_kafka_does_in_its_order(driven: DrivenShareGroups) -> None:
    driven.now_ms = 1_700_000_000_000
    driven.heartbeat("a", 0, ["t"])
    assert [int.from_bytes(key[:2]) for key, _ in driven.log] == [10, 11, 13, 12, 14, 15]
    values = {int.from_bytes(key[:2]): data for key, data in driven.log}
    assert values[12] == bytes.fromhex("0000000000020100080000018bcfe56800")
    assert values[14] == bytes.fromhex("00000000000200000000000100")
    del driven.log[:]
    driven.heartbeat("a", -1)
    assert [(int.from_bytes(key[:2]), data is None) for key, data in driven.log] == [
        (14, True),
        (13, True),
        (10, True),
        (11, False),
    ]


A, B, C = TOPICS = [bytes([number]) * 16 for number in range(3)]
NAMES: Final = "abcdefgh"

assignables = st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 6), min_size=1).map(sorted), max_size=len(TOPICS))
owned = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)), max_size=12)
subscribers = st.builds(Subscriber, topics=st.frozensets(st.sampled_from(TOPICS)), owned=owned)
groups = st.dictionaries(st.sampled_from(NAMES), subscribers, max_size=8)

Group = Mapping[str, Subscriber]
Assignable = dict[bytes, list[int]]


def all_partitions(assignable: Mapping[bytes, Sequence[int]], topics: frozenset[bytes]) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic in topics for number in assignable.get(topic, ())}


def same(names: str, *topics: bytes, owned_by: Mapping[str, Partitions] | None = None) -> Group:
    before = owned_by or {}
    return {name: Subscriber(topics=frozenset(topics), owned=before.get(name, frozenset())) for name in names}


def again(group: Group, before: Mapping[str, Partitions]) -> Group:
    return {name: attrs.evolve(each, owned=before.get(name, frozenset())) for name, each in group.items()}


@given(groups, assignables)
def test_everybody_has_only_what_he_is_subscribed_to_and_every_partition_somebody(group: Group, assignable: Assignable) -> None:
    assigned = assign_simple(group, assignable)
    assert assigned.keys() == group.keys()
    for name, partitions in assigned.items():
        assert partitions <= all_partitions(assignable, group[name].topics)
    wanted = all_partitions(assignable, frozenset().union(*(each.topics for each in group.values())))
    assert frozenset().union(*assigned.values()) == wanted


@given(groups, assignables)
def test_who_is_subscribed_has_something_and_a_second_run_moves_nothing(group: Group, assignable: Assignable) -> None:
    assigned = assign_simple(group, assignable)
    for name, each in group.items():
        assert bool(assigned[name]) == bool(all_partitions(assignable, each.topics))
    first = assign_simple(group, assignable)
    assert assign_simple(again(group, first), assignable) == first


@given(st.sets(st.sampled_from(NAMES), min_size=1), assignables)
@example({"a"}, {A: [0]})
def test_members_differ_by_one_at_most_when_they_begin_with_nothing(names: set[str], assignable: Assignable) -> None:
    sizes = [len(each) for each in assign_simple(same("".join(names), *TOPICS), assignable).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.sets(st.sampled_from(NAMES), min_size=1), assignables, st.dictionaries(st.sampled_from(NAMES), owned))
def test_nobody_has_more_than_his_part(names: set[str], assignable: Assignable, before: dict[str, Partitions]) -> None:
    partitions = all_partitions(assignable, frozenset(TOPICS))
    assigned = assign_simple(same("".join(names), *TOPICS, owned_by=before), assignable)
    if not partitions:
        return
    sharing = -(-len(names) // len(partitions))
    readers = Counter(partition for each in assigned.values() for partition in each)
    assert max(readers.values()) <= sharing
    assert max(len(each) for each in assigned.values()) <= -(-sharing * len(partitions) // len(names))


@given(st.sets(st.sampled_from(NAMES), min_size=1), assignables, st.dictionaries(st.sampled_from(NAMES), owned))
def test_nobody_gives_up_what_fits(names: set[str], assignable: Assignable, before: dict[str, Partitions]) -> None:
    """Where what all had was balanced it stays."""
    group = same("".join(names), *TOPICS)
    first = assign_simple(group, assignable)
    smaller = {name: frozenset(sorted(each)[1:]) for name, each in first.items()}
    second = assign_simple(again(group, smaller), assignable)
    assert all(smaller[name] <= second[name] for name in names)


@pytest.mark.parametrize(
    ("names", "counts", "shared"),
    [
        ("ab", {A: 4}, {"a": "A0 A2", "b": "A1 A3"}),
        ("abc", {A: 1}, {"a": "A0", "b": "A0", "c": "A0"}),
        ("abc", {A: 2}, {"a": "A0 A1", "b": "A0", "c": "A1"}),
        ("ab", {A: 1, B: 2}, {"a": "A0 B1", "b": "B0"}),
    ],
)
def test_small_groups(names: str, counts: dict[bytes, int], shared: dict[str, str]) -> None:
    assigned = assign_simple(same(names, *counts), {topic: range(count) for topic, count in counts.items()})
    letters = {A: "A", B: "B", C: "C"}
    shown = {name: " ".join(f"{letters[topic]}{number}" for topic, number in sorted(each)) for name, each in assigned.items()}
    assert shown == shared


def test_who_is_subscribed_to_one_topic_shares_it_with_who_is_subscribed_to_two() -> None:
    group = {"a": Subscriber(topics=frozenset({A})), "b": Subscriber(topics=frozenset({A, B}))}
    assert assign_simple(group, {A: range(2), B: range(1)}) == {"a": {(A, 0)}, "b": {(A, 1), (B, 0)}}


TOPIC_NAMES = ("t", "u", "v")
names = st.sets(st.sampled_from(TOPIC_NAMES), min_size=1).map(lambda each: tuple(sorted(each)))


class Histories(MemberHistories):
    nothing = Partitions()

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("t", 4)
        self.driven = DrivenShareGroups(self.topics)

    def heartbeat(self, client: Client, *, is_full: bool) -> HeartbeatAnswer:
        return self.driven.heartbeat(client.member_id, client.epoch, client.wants if is_full or not client.epoch else None)

    @rule(target=MemberHistories.clients, names=names)
    def join(self, names: tuple[str, ...]) -> object:
        return self.add(names)

    @rule(client=MemberHistories.clients, names=names)
    def subscribe_to(self, client: Client, names: tuple[str, ...]) -> None:
        if client in self.living:
            client.wants = names
            self.speak(client, is_full=True)

    @rule(name=st.sampled_from(TOPIC_NAMES), partitions=st.integers(1, 5))
    def change_topic(self, name: str, partitions: int) -> None:
        found = self.topics.find(name)
        if found is None:
            self.topics.create(name, partitions)
        elif partitions > found.partitions:
            self.topics.grow(name, partitions)
        else:
            self.topics.delete(name)

    @rule()
    def make_states(self) -> None:
        self.driven.make_states()

    @precondition(lambda self: self.living)
    @rule()
    def settle(self) -> None:
        self.driven.pass_time(self.driven.now_ms + SESSION_MS)  # the dead are out
        for _ in range(3):
            for client in self.living:
                self.speak(client, is_full=True)
            self.driven.make_states()
        for client in self.living:
            self.speak(client)
        found = {name: self.topics.find(name) for name in TOPIC_NAMES}
        ids = {topic.topic_id: name for name, topic in found.items() if topic is not None}
        for client in self.living:
            assert client.has == self.driven.group.members[client.member_id].assigned
            assert {ids[topic_id] for topic_id, _ in client.has} <= set(client.wants)
        wanted = {name for client in self.living for name in client.wants if found[name] is not None}
        read = frozenset().union(*(client.has for client in self.living))
        assert read == frozenset().union(*(self.topics.all_of(name) for name in wanted))
        assert set(self.driven.group.members) == {client.member_id for client in self.living}

    @invariant()
    def the_log_says_what_memory_says(self) -> None:
        there, replayed = self.driven.groups.find(GROUP), self.driven.replayed().find(GROUP)
        assert (there is None) == (replayed is None)
        if there is not None and replayed is not None:
            assert there.describe() == replayed.describe()
            assert (there.targets, there.states, there.subscriptions) == (
                replayed.targets,
                replayed.states,
                replayed.subscriptions,
            )

    @invariant()
    def members_have_timers_and_nobody_else(self) -> None:
        group = self.driven.groups.find(GROUP)
        assert len(self.driven.groups.timers) == (0 if group is None else len(group.members))


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=40)
