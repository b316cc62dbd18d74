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
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.groups.streams.tasks import NO_TASKS, Tasks
from triolog.server.groups.streams.values import StreamsGroupState, StreamsStatusCode

from tests.support.consumer_groups import Topics
from tests.support.streams_groups import GROUP, DrivenStreamsGroups

SESSION_MS = 45_000
REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
PROCESSES = ("p", "q", "r")


@attrs.define(eq=False)
class Client:
    """A thread of an instance: it drops what it is told to drop, and says so with its next full heartbeat."""

    member_id: str
    process_id: str
    epoch: int = 0
    tasks: Tasks = NO_TASKS
    is_out: bool = False


class Histories(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("words", 3)
        self.driven = DrivenStreamsGroups(self.topics)
        self.living: list[Client] = []
        self.count = 0

    def _speak(self, client: Client, *, is_full: bool = False) -> None:
        if client.is_out:
            client.epoch, client.is_out, client.tasks = 0, False, NO_TASKS
        try:
            if client.epoch == 0:
                answer = self.driven.join(client.member_id, process_id=client.process_id)
            else:
                answer = self.driven.heartbeat(client.member_id, client.epoch, client.tasks if is_full else None)
        except RequestError as exc:
            _expect(exc, *REJOIN)
            client.is_out = True
            return
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.tasks = answer.assignment

    @rule(target=clients, process_id=st.sampled_from(PROCESSES))
    def join(self, process_id: str) -> object:
        if len(self.living) >= 6:
            return multiple()
        self.count += 1
        client = Client(f"m{self.count}", process_id)
        self._speak(client)
        self.living.append(client)
        return client

    @rule(client=clients, is_full=st.booleans())
    def speak(self, client: Client, is_full: bool) -> None:
        if client in self.living:
            self._speak(client, is_full=is_full)

    @rule(client=clients)
    def lose_an_answer(self, client: Client) -> None:
        """The client does not know what became of its heartbeat, and says with the next one what it has."""
        if client in self.living and not client.is_out and client.epoch:
            before = client.epoch, client.tasks
            self._speak(client)
            if not client.is_out:
                client.epoch, client.tasks = before
                self._speak(client, is_full=True)

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        if client in self.living:
            self.living.remove(client)
            if not client.is_out:
                try:
                    self.driven.heartbeat(client.member_id, -1)
                except RequestError as exc:
                    _expect(exc, ErrorCode.UNKNOWN_MEMBER_ID)

    @rule(client=consumes(clients))
    def die(self, client: Client) -> None:
        if client in self.living:
            self.living.remove(client)

    @rule(replicas=st.integers(0, 2))
    def ask_for_standbys(self, replicas: int) -> None:
        self.driven.times = self.driven.times._replace(num_standby_replicas=replicas)

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        if compacted:
            self.driven.compact()
        self.driven.restart()

    @rule(passed_ms=st.integers(1, SESSION_MS))
    def pass_time(self, passed_ms: int) -> None:
        self.driven.pass_time(self.driven.now_ms + passed_ms)

    @precondition(lambda self: self.living)
    @rule()
    def settle(self) -> None:
        self.driven.pass_time(self.driven.now_ms + SESSION_MS)  # the dead are out
        for _ in range(8):
            for client in self.living:
                self._speak(client, is_full=True)
        group = self.driven.group
        assert group.state is StreamsGroupState.STABLE
        assert set(group.members) == {client.member_id for client in self.living}
        active = Counter(task for client in self.living for task in client.tasks.active)
        assert active == Counter([*(("0", number) for number in range(3)), *(("1", number) for number in range(3))])
        for client in self.living:
            assert client.tasks == group.members[client.member_id].assigned.tasks
        copies = Counter((task, c.process_id) for c in self.living for task in (*c.tasks.active, *c.tasks.standby))
        assert set(copies.values()) <= {1}, "a process has a task twice"
        wanted = min(self.driven.times.num_standby_replicas, len({client.process_id for client in self.living}) - 1)
        standby = Counter(task for client in self.living for task in client.tasks.standby)
        assert standby == Counter({("1", number): wanted for number in range(3) if wanted})
        sizes = [len(client.tasks.active) for client in self.living]
        if wanted == 0:
            per_process = Counter(client.process_id for client in self.living)
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
                    assert there.holders.active(task) == replayed.holders.active(task) == member.process_id

    @invariant()
    def members_have_timers_and_nobody_else(self) -> None:
        group = self.driven.groups.find(GROUP)
        count = 0 if group is None else len(group.members)
        revoking = 0 if group is None else sum(bool(member.revoking) for member in group.members.values())
        assert len(self.driven.groups.timers) == count + revoking


def _expect(exc: RequestError, *codes: ErrorCode) -> None:
    assert exc.code in codes, exc


def test_a_status_says_that_topics_are_missing_until_they_are_made() -> None:
    topics = Topics()
    topics.create("words", 2)
    driven = DrivenStreamsGroups(topics)
    first = driven.join("m")
    assert [(each.code, each.detail) for each in first.statuses] == [
        (StreamsStatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: app-changelog, app-repartition")
    ]
    assert [(each.name, each.partitions) for each in first.missing_topics] == [("app-changelog", 2), ("app-repartition", 2)]
    assert driven.group.state is StreamsGroupState.NOT_READY
    second = driven.heartbeat("m", first.member_epoch)
    assert (second.statuses, second.missing_topics) == ((), ())
    assert second.assignment is not None
    assert len(second.assignment.active) == 4
    assert driven.group.state is StreamsGroupState.STABLE


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=40)
