"""Histories of a group whose assignments the server makes: members that come, go, die and lose answers, topics that change,
records that cannot be stored, restarts.

**No partition is owned by two members at once.** Owned is what a client was told last and has not been told to give up,
whatever the server thinks; one that the server has thrown out owns nothing, because its session is over for it too.
"""

from __future__ import annotations

import re
from typing import Final

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.groups.assigned.values import AssignedGroupSettings

from tests.support.consumer_groups import GROUP, Consumer, Driven, Topics

pytest.importorskip("re2")

TOPICS: Final = ("t", "u", "v")
REGEXES: Final = ("t|u", "[u-z]", ".")
REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
SESSION_MS: Final = 45_000
names = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda each: tuple(sorted(each)))


@attrs.define(eq=False)
class Client:
    """A process with a consumer: it lives until it leaves or dies."""

    consumer: Consumer
    is_out: bool = False
    """It was told so, and has given up everything."""
    is_unsure: bool = False
    """An answer was lost."""


class Histories(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("t", 4)
        self.driven = Driven(self.topics, AssignedGroupSettings())
        self.living: list[Client] = []
        self.dead: list[Client] = []
        self.count = 0

    @rule(target=clients, names=names, instance_id=st.sampled_from([None, None, None, "x", "y"]), is_slow=st.booleans())
    def join(self, names: tuple[str, ...], instance_id: str | None, is_slow: bool) -> object:
        if len(self.living) >= 5:
            return multiple()
        self.count += 1
        consumer = Consumer(
            driven=self.driven,
            member_id=f"m{self.count}",
            topic_names=names,
            instance_id=instance_id,
            topic_regex="",
            is_slow=is_slow,
        )
        client = Client(consumer)
        try:
            consumer.join()
        except RequestError as exc:
            _expect(exc, ErrorCode.UNRELEASED_INSTANCE_ID)
            return multiple()
        for other in [each for each in self.living if instance_id and each.consumer.instance_id == instance_id]:
            self.die(other)
        self.living.append(client)
        return client

    def _speak(self, client: Client, **changes: object) -> None:
        consumer = client.consumer
        try:
            if client.is_out:
                consumer.join(**changes)
            elif client.is_unsure:
                consumer.say_all(**changes)
            else:
                consumer.beat(**changes)
        except RequestError as exc:
            _expect(exc, *REJOIN)
            client.is_out = True
            consumer.give_up()
        else:
            client.is_out = client.is_unsure = False

    @rule(client=clients)
    def beat(self, client: Client) -> None:
        if client in self.living:
            self._speak(client)

    @rule()
    def everybody_beats(self) -> None:
        for client in self.living:
            self._speak(client)

    @rule(client=clients)
    def answer_is_lost(self, client: Client) -> None:
        if client in self.living and not client.is_out:
            consumer = client.consumer
            before = consumer.epoch, consumer.owned, consumer.letting_go
            self._speak(client)
            if not client.is_out:
                consumer.epoch, consumer.owned, consumer.letting_go = before
                consumer.reported, client.is_unsure = None, True

    @rule(client=clients)
    def let_go(self, client: Client) -> None:
        client.consumer.let_go()

    @rule(client=clients, age=st.integers(1, 6))
    def an_old_heartbeat_arrives(self, client: Client, age: int) -> None:
        """From a connection that was given up, after newer ones: its answer reaches nobody."""
        said, group = client.consumer.said, self.driven.groups.find(GROUP)
        if age > len(said) or group is None or client.consumer.member_id not in group.members:
            return
        if said[-age].member_epoch >= group.members[client.consumer.member_id].previous_epoch:
            return
        before = group.describe()
        with pytest.raises(RequestError):
            self.driven.heartbeat(said[-age])
        assert group.describe() == before

    @rule(client=clients, names=names | st.just(()), regex=st.sampled_from(["", "", *REGEXES]))
    def subscribe(self, client: Client, names: tuple[str, ...], regex: str) -> None:
        if client in self.living:
            client.consumer.topic_names, client.consumer.topic_regex = names, regex
            self._speak(client, topic_names=names, topic_regex=regex)

    @rule(client=clients)
    def record_cannot_be_stored(self, client: Client) -> None:
        if client in self.living and not client.is_out:
            described = self.driven.groups.find(GROUP)
            before = None if described is None else described.describe()
            consumer = client.consumer
            request = consumer._request(owned=consumer.held, topic_names=("t",))
            try:
                self.driven.groups.heartbeat(request, 0)
            except RequestError:
                client.is_out = True
                consumer.give_up()
            after = self.driven.groups.find(GROUP)
            assert before == (None if after is None else after.describe())

    @rule(client=consumes(clients), epoch=st.sampled_from([-1, -2]))
    def leave(self, client: Client, epoch: int) -> None:
        if client not in self.living:
            return
        self.living.remove(client)
        if not client.is_out:
            try:
                client.consumer.leave(epoch if client.consumer.instance_id else -1)
            except RequestError as exc:
                _expect(exc, *REJOIN)

    @rule(client=consumes(clients))
    def dies(self, client: Client) -> None:
        self.die(client)

    def die(self, client: Client) -> None:
        if client in self.living:
            self.living.remove(client)
            self.dead.append(client)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def create_or_grow(self, name: str, partitions: int) -> None:
        found = self.topics.find(name)
        if found is None:
            self.topics.create(name, partitions)
        elif partitions > found.partitions:
            self.topics.grow(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        if self.topics.find(name) is not None:
            self.topics.delete(name)

    @rule(milliseconds=st.sampled_from([1_000, 20_000, SESSION_MS, 120_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.driven.pass_time(self.driven.now_ms + milliseconds)

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        before = self.driven.groups.find(GROUP)
        if compacts:
            self.driven.compact()
        self.driven.restart()
        after = self.driven.groups.find(GROUP)
        if before is not None and after is not None:
            assert (before.members, before.owners, before.targets) == (after.members, after.owners, after.targets)
            assert (before.epoch, before.assignment_epoch, before.static_members) == (
                after.epoch,
                after.assignment_epoch,
                after.static_members,
            )
        assert (before is None) == (after is None)

    @rule()
    def everything_finds_its_owner(self) -> None:
        """The dead come due; the living go on, and after some heartbeats have all that they subscribe to."""
        self.driven.pass_time(self.driven.now_ms + SESSION_MS)
        for _ in range(40):
            for client in self.living:
                self._speak(client)
                client.consumer.let_go()
        assert not any(client.is_out for client in self.living)
        owned = [partition for client in self.living for partition in client.consumer.owned]
        wanted = {name for client in self.living for name in _wanted(client.consumer) if self.topics.find(name)}
        assert sorted(owned) == sorted(partition for name in wanted for partition in self.topics.all_of(name))
        written = len(self.driven.log)
        for client in self.living:
            self._speak(client)
        assert len(self.driven.log) == written

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.driven.groups.find(GROUP)
        members = {} if group is None else group.members
        owned = [
            partition
            for client in [*self.living, *self.dead]
            if client.consumer.member_id in members and not client.is_out
            for partition in client.consumer.held
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def the_server_knows_who_owns_what(self) -> None:
        group = self.driven.groups.find(GROUP)
        if group is not None:
            held = {partition: member_id for member_id, member in group.members.items() for partition in member.held}
            assert held == group.owners
            assert sum(len(member.held) for member in group.members.values()) == len(held)

    def teardown(self) -> None:
        """Nothing is left of members that are gone, and of a group that was removed nothing at all."""
        self.living.clear()
        self.driven.pass_time(self.driven.now_ms + 200_000)
        groups = self.driven.groups
        group = groups.find(GROUP)
        if group is not None:
            kept = [group.members, group.targets, group.owners, group.regexes, group.static_members]
            assert not any(kept)
            self.driven.commit(groups.plan_removal(GROUP))
            groups.forget(GROUP)
        assert (len(groups), len(groups.timers), groups.next_deadline_ms) == (0, 0, None)
        self.driven.compact()
        assert all(value is None for _, value in self.driven.log)
        super().teardown()


def _wanted(consumer: Consumer) -> set[str]:
    matched = [name for name in TOPICS if re.fullmatch(consumer.topic_regex or "", name)]
    return {*(consumer.topic_names or ()), *matched}


def _expect(error: RequestError, *codes: ErrorCode) -> None:
    if error.code not in codes:
        raise error


TestHistories = Histories.TestCase
