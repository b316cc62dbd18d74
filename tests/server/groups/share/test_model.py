"""Histories of a share group: members that come, go, die and lose answers, topics that change, states that come late, restarts.

**When everybody has spoken twice and all states are there, every partition of a subscribed topic has a reader who is subscribed
to it, and everybody knows what he has.** At any time the log, compacted or not, says what memory says.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from triolog.server.groups.assigned.values import HeartbeatAnswer, Partitions

from tests.server.groups.histories import SESSION_MS, Client, MemberHistories
from tests.support.consumer_groups import Topics
from tests.support.share_groups import GROUP, DrivenShareGroups

NAMES = ("t", "u", "v")
names = st.sets(st.sampled_from(NAMES), min_size=1).map(lambda each: tuple(sorted(each)))


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
        found = {name: self.topics.find(name) for name in NAMES}
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
