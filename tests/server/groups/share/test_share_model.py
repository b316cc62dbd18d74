"""Histories of a share group: members that come, go, die and lose answers, topics that change, states that come late, restarts.

**When everybody has spoken twice and all states are there, every partition of a subscribed topic has a reader who is subscribed
to it, and everybody knows what he has.** At any time the log, compacted or not, says what memory says.
"""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.groups.consumer_assignors import Partitions

from tests.support.consumer_groups import Topics
from tests.support.share_groups import GROUP, DrivenShareGroups

NAMES = ("t", "u", "v")
SESSION_MS = 45_000
REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
names = st.sets(st.sampled_from(NAMES), min_size=1).map(lambda each: tuple(sorted(each)))


@attrs.define(eq=False)
class Client:
    member_id: str
    names: tuple[str, ...]
    epoch: int = 0
    reads: Partitions = frozenset()
    is_out: bool = False


class Histories(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("t", 4)
        self.driven = DrivenShareGroups(self.topics)
        self.living: list[Client] = []
        self.count = 0

    def _speak(self, client: Client, said: tuple[str, ...] | None = None) -> None:
        if client.is_out:
            client.epoch, client.is_out, client.reads = 0, False, frozenset()
        full = client.names if client.epoch == 0 else said
        try:
            answer = self.driven.heartbeat(client.member_id, client.epoch, full)
        except RequestError as exc:
            _expect(exc, *REJOIN)
            client.is_out = True
            return
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.reads = answer.assignment

    @rule(target=clients, names=names)
    def join(self, names: tuple[str, ...]) -> object:
        if len(self.living) >= 6:
            return multiple()
        self.count += 1
        client = Client(f"m{self.count}", names)
        self._speak(client)
        self.living.append(client)
        return client

    @rule(client=clients)
    def speak(self, client: Client) -> None:
        if client in self.living:
            self._speak(client)

    @rule(client=clients)
    def lose_an_answer(self, client: Client) -> None:
        """The client does not know what became of its heartbeat, and says everything again with the next."""
        if client in self.living and not client.is_out:
            before = client.epoch, client.reads
            self._speak(client)
            if not client.is_out:
                client.epoch, client.reads = before
                self._speak(client, client.names)

    @rule(client=clients, names=names)
    def subscribe_to(self, client: Client, names: tuple[str, ...]) -> None:
        if client in self.living:
            client.names = names
            self._speak(client, names)

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

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 5))
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
        for _ in range(3):
            for client in self.living:
                self._speak(client, client.names)
            self.driven.make_states()
        for client in self.living:
            self._speak(client)
        found = {name: self.topics.find(name) for name in NAMES}
        ids = {topic.topic_id: name for name, topic in found.items() if topic is not None}
        for client in self.living:
            assert client.reads == self.driven.group.members[client.member_id].assigned
            assert {ids[topic_id] for topic_id, _ in client.reads} <= set(client.names)
        wanted = {name for client in self.living for name in client.names if found[name] is not None}
        read = frozenset().union(*(client.reads for client in self.living))
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


def _expect(exc: RequestError, *codes: ErrorCode) -> None:
    assert exc.code in codes, exc


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=40)
