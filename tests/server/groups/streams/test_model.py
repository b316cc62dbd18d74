"""Histories of a Streams group: instances of several threads that come, go, die and lose answers, standby tasks that are asked
for and not any more, restarts.

**When everybody has spoken often enough every task has one member that runs it, copies are of other processes, and everybody
knows what he has.** At any time no task is run by two who have not given it up, and the log, compacted or not, says what memory
says.
"""

from __future__ import annotations

from collections import Counter

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from triolog.server.groups.streams.values import NO_TASKS, StreamsHeartbeatAnswer, StreamsStatusCode
from triolog.server.groups.values import GroupState

from tests.server.groups.histories import SESSION_MS, Client, MemberHistories
from tests.support.consumer_groups import Topics
from tests.support.streams_groups import GROUP, DrivenStreamsGroups


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
