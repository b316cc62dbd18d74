"""What single heartbeats lead to, and time (the rest: `test_streams_model`, and over the wire `kafka/test_streams_groups`).
The assignor `sticky`: every task once, copies in other processes, evenly, and with whom they were. How many partitions
internal topics get. Messages are those of Apache Kafka 4.3.1. Histories of a Streams group: instances of several threads that
come, go, die and lose answers, standby tasks that are asked for and not any more, restarts. **When everybody has spoken often
enough every task has one member that runs it, copies are of other processes, and everybody knows what he has.** At any time no
task is run by two who have not given it up, and the log, compacted or not, says what memory says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from triolog.protocol.coordinator import streams_group_records as records
from triolog.protocol.coordinator.streams_group_records import (
    STREAMS_GROUP_RECORDS,
    StreamsGroupCopartitionGroup,
    StreamsGroupSubtopology,
)
from triolog.protocol.errors import RequestError
from triolog.server.groups.streams.assignor import AssignedMember, SubtopologyTasks, assign_sticky
from triolog.server.groups.streams.member import MemberState
from triolog.server.groups.streams.topology import MAX_SUBTOPOLOGIES, MAX_TASKS, MAX_TOPICS, Topology, check_topology, configure
from triolog.server.groups.streams.values import (
    NO_TASKS,
    HeldTasks,
    StreamsHeartbeatAnswer,
    StreamsStatusCode,
    StreamsTimes,
    TaskId,
    Tasks,
)
from triolog.server.groups.values import GroupState

from tests.server.groups.histories import SESSION_MS, Client, MemberHistories
from tests.support.consumer_groups import Topics
from tests.support.streams_groups import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    WORD_COUNT,
    DrivenStreamsGroups,
    internal,
    subtopology,
    topology,
)

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


PARTS = st.dictionaries(st.sampled_from("0123"), st.builds(SubtopologyTasks, st.integers(1, 6), st.booleans()), min_size=1)
PROCESSES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("pqr"), min_size=1)


def assign(
    processes: Mapping[str, str],
    parts: Mapping[str, SubtopologyTasks],
    replicas: int = 0,
    before: Mapping[str, Tasks] | None = None,
) -> dict[str, Tasks]:
    members = {name: AssignedMember(process, (before or {}).get(name, Tasks())) for name, process in processes.items()}
    return assign_sticky(members, parts, replicas)


def every_task(parts: Mapping[str, SubtopologyTasks], *, with_state: bool = False) -> list[TaskId]:
    wanted = [(name, part) for name, part in parts.items() if part.is_stateful or not with_state]
    return [TaskId(name, number) for name, part in wanted for number in range(part.task_count)]


@given(PROCESSES, PARTS, st.integers(0, 3), PROCESSES)
def test_tasks_are_run_once_and_copied_elsewhere(
    processes: dict[str, str], parts: dict[str, SubtopologyTasks], replicas: int, earlier: dict[str, str]
) -> None:
    before = assign(earlier, parts, replicas)
    targets = assign(processes, parts, replicas, before)
    assert targets.keys() == processes.keys()
    assert sorted(task for each in targets.values() for task in each.active) == sorted(every_task(parts))
    held = Counter((processes[name], task) for name, each in targets.items() for task in (*each.active, *each.standby))
    assert set(held.values()) == {1}, "a process has a task twice"
    copies = min(replicas, len(set(processes.values())) - 1)
    standby = Counter(task for each in targets.values() for task in each.standby)
    assert standby == Counter({task: copies for task in every_task(parts, with_state=True) if copies})
    assert not any(each.warmup for each in targets.values())


@given(PROCESSES, PARTS, st.integers(0, 2))
def test_an_assignment_stays(processes: dict[str, str], parts: dict[str, SubtopologyTasks], replicas: int) -> None:
    before = assign(processes, parts, replicas)
    again = assign(processes, parts, replicas, before)
    assert {name: each.active for name, each in again.items()} == {name: each.active for name, each in before.items()}


@given(st.integers(1, 8), PARTS)
def test_members_of_like_processes_have_about_equally_many(count: int, parts: dict[str, SubtopologyTasks]) -> None:
    targets = assign({f"m{number}": f"p{number}" for number in range(count)}, parts)
    sizes = [len(each.active) for each in targets.values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(2, 8), PARTS)
def test_what_the_others_have_stays_when_a_member_leaves(count: int, parts: dict[str, SubtopologyTasks]) -> None:
    processes = {f"m{number}": f"p{number}" for number in range(count)}
    before = assign(processes, parts)
    left = {name: process for name, process in processes.items() if name != "m0"}
    after = assign(left, parts, 0, before)
    assert all(before[name].active <= after[name].active for name in left)


def test_a_copy_takes_over_when_its_owner_is_gone() -> None:
    parts = {"0": SubtopologyTasks(6, is_stateful=True)}
    before = assign({"a": "p", "b": "q", "c": "r"}, parts, 1)
    after = assign({"b": "q", "c": "r"}, parts, 1, before)
    moved = before["a"].active
    taken = {name: after[name].active & moved for name in "bc"}
    kept = {name: taken[name] & before[name].standby for name in "bc"}
    assert taken["b"] | taken["c"] == moved
    assert kept["b"] or kept["c"], "nobody who had a copy runs the task"


def topics_of(counts: Mapping[str, int]) -> Topics:
    topics = Topics()
    for name, count in counts.items():
        topics.create(name, count)
    return topics


def missing(counts: Mapping[str, int], *parts: StreamsGroupSubtopology) -> dict[str, int]:
    configured = configure(Topology.of(topology(*parts)), topics_of(counts))
    assert configured.problem is None or configured.problem.code is StreamsStatusCode.MISSING_INTERNAL_TOPICS
    return {topic.name: topic.partitions for topic in configured.missing}


def problem(counts: Mapping[str, int], *parts: StreamsGroupSubtopology) -> tuple[StreamsStatusCode, str]:
    configured = configure(Topology.of(topology(*parts)), topics_of(counts))
    assert configured.problem is not None
    assert configured.subtopologies is None
    return configured.problem.code, configured.problem.detail


def together(*sources: int, repartition: tuple[int, ...] = ()) -> StreamsGroupCopartitionGroup:
    return StreamsGroupCopartitionGroup(
        source_topics=list(sources), source_topic_regex=[], repartition_source_topics=list(repartition)
    )


A, B = subtopology("0", "a", sinks=["r"]), subtopology("1", "b", sinks=["s"])
CHAIN = [subtopology(f"{number}", repartition=[internal(f"r{number + 1}")], sinks=[f"r{number}"]) for number in range(5)]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [
                A,
                subtopology("1", "b", sinks=["r"]),
                subtopology("2", repartition=[internal("r")], sinks=["s"], changelogs=["c"]),
                subtopology("3", repartition=[internal("s")], changelogs=["d"]),
            ],
            {"r": 3, "s": 3, "c": 3, "d": 3},
        ),
        ([*CHAIN, subtopology("5", "a", sinks=["r5"])], dict.fromkeys((f"r{number}" for number in range(1, 6)), 3)),
        ([A, subtopology("1", repartition=[internal("r", 8)], changelogs=["c"])], {"r": 8, "c": 8}),
        ([A, subtopology("1", "b", repartition=[internal("r")], copartitioned=[together(0, repartition=(0,))])], {"r": 5}),
        (
            [A, B, subtopology("2", repartition=[internal("r"), internal("s")], copartitioned=[together(repartition=(0, 1))])],
            {"r": 5, "s": 5},
        ),
    ],
    ids=["as many as writers read", "a chain", "a number", "copartitioned with a source", "copartitioned with each other"],
)
def test_a_missing_topic_has_the_partitions_of(parts: list[StreamsGroupSubtopology], expected: dict[str, int]) -> None:
    assert missing({"a": 3, "b": 5}, *parts) == expected


def test_what_does_not_fit_is_told() -> None:
    wrong = StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert problem({"a": 3, "b": 5}, subtopology("0", "a", "b", copartitioned=[together(0, 1)])) == (
        wrong,
        "Following topics do not have the same number of partitions: [{a=3, b=5}]",
    )
    fixed = subtopology("1", "b", repartition=[internal("r", 4)], copartitioned=[together(0, repartition=(0,))])
    assert problem({"a": 3, "b": 5}, subtopology("0", "a", sinks=["r"]), fixed) == (
        wrong,
        "Number of partitions [4] of repartition topic [r] doesn't match number of partitions [5] of the source topic.",
    )
    assert problem({"a": 3, "c": 2}, subtopology("0", "a", changelogs=["c"])) == (
        wrong,
        "Existing topic c has different number of partitions: expected 3, found 2",
    )


def test_of_many_missing_topics_three_are_named() -> None:
    assert problem({}, subtopology("0", "d", "b", "a", "c", "e")) == (
        StreamsStatusCode.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 2 additional topics are missing.",
    )


@pytest.mark.parametrize(
    "parts",
    [
        [subtopology(f"{number}", "a") for number in range(MAX_SUBTOPOLOGIES + 1)],
        [subtopology("0", *(["a"] * (MAX_TOPICS + 1)))],
        [subtopology("0", "a"), subtopology("0", "b")],
        [subtopology("0", "a", copartitioned=[together(1)])],
        [subtopology("0", "a", copartitioned=[together(-1)])],
        [subtopology("0", "a", repartition=[internal("r", -1)])],
    ],
    ids=["parts", "topics", "same id", "an index", "a negative index", "a negative number"],
)
def test_a_topology_has_limits(parts: list[StreamsGroupSubtopology]) -> None:
    with pytest.raises(RequestError, match=r"^STREAMS_INVALID_TOPOLOGY"):
        check_topology(topology(*parts))


def test_an_application_has_a_limit_of_tasks() -> None:
    parts = [subtopology(f"{number}", "a") for number in range(3)]
    assert missing({"a": MAX_TASKS // 3}, *parts) == {}
    with pytest.raises(RequestError, match="tasks"):
        missing({"a": MAX_TASKS // 3 + 1}, *parts)


def test_the_order_of_its_parts_is_nothing_to_a_topology() -> None:
    assert Topology.of(WORD_COUNT) == Topology.of(topology(*reversed(WORD_COUNT.subtopologies)))
    assert Topology.of(WORD_COUNT) != Topology.of(topology(*WORD_COUNT.subtopologies, epoch=1))
    assert Topology.of(WORD_COUNT).readers == {"words": "0", "app-repartition": "1"}


class Histories(MemberHistories):
    """Of threads of instances: one drops what it is told to drop, and says so with its next full heartbeat."""

    nothing = NO_TASKS

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("words", 3)
        self.driven = DrivenStreamsGroups(self.topics)

    def heartbeat(self, client: Client, *, is_full: bool) -> StreamsHeartbeatAnswer:
        if client.epoch == 0:
            return self.driven.join(client.member_id, process_id=client.wants)
        return self.driven.heartbeat(client.member_id, client.epoch, client.has if is_full else None)

    @rule(target=MemberHistories.clients, process_id=st.sampled_from("pqr"))
    def join(self, process_id: str) -> object:
        return self.add(process_id)

    @rule(replicas=st.integers(0, 2))
    def ask_for_standbys(self, replicas: int) -> None:
        self.driven.times = attrs.evolve(self.driven.times, num_standby_replicas=replicas)

    @precondition(lambda self: self.living)
    @rule()
    def settle(self) -> None:
        self.driven.pass_time(self.driven.now_ms + SESSION_MS)  # the dead are out
        for _ in range(8):
            for client in self.living:
                self.speak(client, is_full=True)
        group = self.driven.group
        assert group.state is GroupState.STABLE
        assert set(group.members) == {client.member_id for client in self.living}
        active = Counter(task for client in self.living for task in client.has.active)
        assert active == Counter([*(("0", number) for number in range(3)), *(("1", number) for number in range(3))])
        for client in self.living:
            assert client.has == group.members[client.member_id].assigned.tasks
        copies = Counter((task, c.wants) for c in self.living for task in (*c.has.active, *c.has.standby))
        assert set(copies.values()) <= {1}, "a process has a task twice"
        wanted = min(self.driven.times.num_standby_replicas, len({client.wants for client in self.living}) - 1)
        standby = Counter(task for client in self.living for task in client.has.standby)
        assert standby == Counter({("1", number): wanted for number in range(3) if wanted})
        sizes = [len(client.has.active) for client in self.living]
        if wanted == 0:
            per_process = Counter(client.wants for client in self.living)
            assert len(set(per_process.values())) > 1 or max(sizes) - min(sizes) <= 2

    @invariant()
    def nobody_else_has_a_task_that_is_run(self) -> None:
        group = self.driven.groups.find(GROUP)
        members = () if group is None else group.members.values()
        held = Counter(task for member in members for each in (member.assigned, member.revoking) for task in each.active)
        assert set(held.values()) <= {1}

    @invariant()
    def the_log_says_what_memory_says(self) -> None:
        there, replayed = self.driven.groups.find(GROUP), self.driven.replayed().find(GROUP)
        assert (there is None) == (replayed is None)
        if there is not None and replayed is not None:
            assert (there.members, there.targets, there.topology) == (replayed.members, replayed.targets, replayed.topology)
            assert (there.state, there.epoch, there.assignment_epoch) == (
                replayed.state,
                replayed.epoch,
                replayed.assignment_epoch,
            )
            for member in there.members.values():
                for task in (*member.assigned.active, *member.revoking.active):
                    assert there.active[task] == replayed.active[task] == member.process_id

    @invariant()
    def members_have_timers_and_nobody_else(self) -> None:
        group = self.driven.groups.find(GROUP)
        count = 0 if group is None else len(group.members)
        revoking = 0 if group is None else sum(bool(member.revoking) for member in group.members.values())
        assert len(self.driven.groups.timers) == count + revoking


def test_a_status_says_that_topics_are_missing_until_they_are_made() -> None:
    topics = Topics()
    topics.create("words", 2)
    driven = DrivenStreamsGroups(topics)
    first = driven.join("m")
    assert [(each.code, each.detail) for each in first.statuses] == [
        (StreamsStatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: app-changelog, app-repartition")
    ]
    assert [(each.name, each.partitions) for each in first.missing_topics] == [("app-changelog", 2), ("app-repartition", 2)]
    assert driven.group.state is GroupState.NOT_READY
    second = driven.heartbeat("m", first.member_epoch)
    assert (second.statuses, second.missing_topics) == ((), ())
    assert second.assignment is not None
    assert len(second.assignment.active) == 4
    assert driven.group.state is GroupState.STABLE


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=40)
