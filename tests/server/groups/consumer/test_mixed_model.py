"""Histories of a group whose members use both protocols: processes of either one that come, go, die, lose answers and take each
other's place under an instance id, records that cannot be stored, restarts.

**No partition is read by two members at once, and none stays unread.** A process that the server has thrown out reads nothing,
because its session is over for it too.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.config.values import MigrationPolicy
from triolog.server.groups.assigned.values import AssignedGroupSettings, Partitions
from triolog.server.groups.values import GroupState

from tests.support.consumer_groups import GROUP, Consumer, Topics
from tests.support.mixed_groups import COOPERATIVE, EAGER, ClassicClient, Mixed

TOPICS: Final = ("t", "u")
REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
MOST: Final = 5
ROUND_MS: Final = 10_000
ROUNDS: Final = 60
"""Longer than a new member that has died in its first join is waited for."""

names = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda each: tuple(sorted(each)))
instances = st.sampled_from([None, None, None, "x", "y"])


@attrs.define(eq=False)
class Process:
    """A program with a consumer, which uses one of the protocols."""

    driven: Mixed
    client: Consumer | ClassicClient
    is_out: bool = False

    @property
    def is_classic(self) -> bool:
        return isinstance(self.client, ClassicClient)

    @property
    def held(self) -> Partitions:
        return self.client.held

    @property
    def counts(self) -> bool:
        """Whether the server believes that it is a member. A static member that has missed a generation is believed dead."""
        member_id, group = self.client.member_id, self.driven.groups.find(GROUP)
        if group is not None:
            return member_id in group.members and not self.is_out
        classic = self.driven.classic_group
        if classic is None or member_id not in classic.members or not isinstance(self.client, ClassicClient):
            return False
        is_current = classic.state is GroupState.PREPARING_REBALANCE or self.client.generation == classic.generation
        return self.client.instance_id is None or is_current

    def step(self) -> None:
        if isinstance(self.client, ClassicClient):
            self.client.step()
            return
        try:
            if self.is_out:
                self.client.join()
            else:
                self.client.beat()
            self.is_out = False
        except RequestError as exc:
            expect(exc, *REJOIN, *((ErrorCode.UNRELEASED_INSTANCE_ID,) if self.is_out else ()))
            self.is_out = True
            self.client.give_up()

    def leave(self) -> None:
        try:
            if not self.is_out:
                self.client.leave()
        except RequestError as exc:
            expect(exc, *REJOIN)


class MixedHistories(RuleBasedStateMachine):
    processes = Bundle("processes")
    policy = MigrationPolicy.BIDIRECTIONAL

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("t", 4)
        self.driven = Mixed(self.topics, AssignedGroupSettings(migration_policy=self.policy))
        self.living: list[Process] = []
        self.dead: list[Process] = []
        self.count = 0

    # ---- processes come and go -------------------------------------------------------------------------------------------

    @rule(target=processes, names=names, instance_id=instances, protocol=st.sampled_from([EAGER, COOPERATIVE]))
    def start_classic(self, names: tuple[str, ...], instance_id: str | None, protocol: str) -> object:
        if len(self.living) >= MOST:
            return multiple()
        client = ClassicClient(driven=self.driven, topic_names=names, instance_id=instance_id, protocol=protocol)
        client.step()  # gets a member id
        client.step()
        if client.errors:
            assert set(client.errors) == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
            return multiple()
        return self.started(Process(self.driven, client), instance_id)

    @rule(target=processes, names=names, instance_id=instances, fails=st.booleans())
    def start_consumer(self, names: tuple[str, ...], instance_id: str | None, fails: bool) -> object:
        if len(self.living) >= MOST:
            return multiple()
        self.count += 1
        fields: dict[str, Any] = {"driven": self.driven, "member_id": f"m{self.count}", "topic_regex": ""}
        client = Consumer(**fields, topic_names=names, instance_id=instance_id)
        before = self.driven.kind, self.driven.member_ids()
        self.driven.fails, is_refused = fails, False
        try:
            client.join()
        except RequestError as exc:
            expect(exc, ErrorCode.UNRELEASED_INSTANCE_ID, *((ErrorCode.COORDINATOR_NOT_AVAILABLE,) if fails else ()))
            is_refused = True
        finally:
            self.driven.fails = False
        if is_refused:
            assert before == (self.driven.kind, self.driven.member_ids())
            return multiple()
        return self.started(Process(self.driven, client), instance_id)

    def started(self, process: Process, instance_id: str | None) -> Process:
        for other in [each for each in self.living if instance_id and each.client.instance_id == instance_id]:
            self.die(other)
        self.living.append(process)
        return process

    @rule(process=consumes(processes))
    def leaves(self, process: Process) -> None:
        if process in self.living:
            self.living.remove(process)
            process.leave()

    @rule(process=consumes(processes))
    def dies(self, process: Process) -> None:
        self.die(process)

    def die(self, process: Process) -> None:
        if process in self.living:
            self.living.remove(process)
            self.dead.append(process)

    # ---- they speak ------------------------------------------------------------------------------------------------------

    @rule(process=processes)
    def step(self, process: Process) -> None:
        if process in self.living:
            self.let_step(process)

    @rule(rounds=st.integers(1, 6))
    def everybody_steps(self, rounds: int) -> None:
        for _ in range(rounds):
            for process in list(self.living):
                self.let_step(process)

    def let_step(self, process: Process) -> None:
        process.step()
        if isinstance(process.client, ClassicClient) and process.client.is_over:
            self.die(process)

    @rule(process=processes)
    def loses_its_connection(self, process: Process) -> None:
        if process in self.living and isinstance(process.client, ClassicClient):
            process.client.forget_answer()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def create_or_grow(self, name: str, partitions: int) -> None:
        found = self.topics.find(name)
        if found is None:
            self.topics.create(name, partitions)
        elif partitions > found.partitions:
            self.topics.grow(name, partitions)

    @rule(milliseconds=st.sampled_from([1_000, 20_000, 45_000, 120_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.driven.pass_time(self.driven.now_ms + milliseconds)

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        before = self.driven.groups.find(GROUP)
        if compacts:
            self.driven.compact()
        self.driven.restart()
        after = self.driven.groups.find(GROUP)
        assert (None if before is None else before.describe()) == (None if after is None else after.describe())
        if before is not None and after is not None:
            assert (before.members, before.owners) == (after.members, after.owners)
        for process in self.living:
            if isinstance(process.client, ClassicClient):
                process.client.forget_answer()

    # ---- what holds ------------------------------------------------------------------------------------------------------

    @rule(rejoins=st.booleans())
    def everything_finds_its_reader(self, rejoins: bool) -> None:
        """The dead come due. A classic group learns of new partitions only when a member joins again."""
        for process in self.living if rejoins or self.driven.kind == "classic" else ():
            if isinstance(process.client, ClassicClient) and process.client.is_stable:
                process.client.next = process.client.join
        for _ in range(ROUNDS):
            self.driven.pass_time(self.driven.now_ms + ROUND_MS)
            for process in [*self.living, *self.living]:
                self.let_step(process)
        stuck = [each.client for each in self.living if isinstance(each.client, ClassicClient) and not each.client.is_stable]
        assert not stuck
        held = sorted(partition for process in self.living for partition in process.held)
        wanted = {name for process in self.living for name in process.client.topic_names or () if self.topics.find(name)}
        assert held == sorted(partition for name in wanted for partition in self.topics.all_of(name))
        assert {process.client.member_id for process in self.living} == self.driven.member_ids()
        self.kind_is_right()

    def kind_is_right(self) -> None:
        if self.living and all(process.is_classic for process in self.living):
            assert self.driven.kind == "classic"
        elif self.living:
            assert self.driven.kind == "consumer"

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        held = [partition for process in [*self.living, *self.dead] if process.counts for partition in process.held]
        assert len(held) == len(set(held))

    @invariant()
    def one_state_machine_has_the_group(self) -> None:
        assert GROUP not in self.driven.groups or self.driven.classic.describe(GROUP) is None
        group = self.driven.groups.find(GROUP)
        if group is not None:
            held = {partition: member_id for member_id, member in group.members.items() for partition in member.held}
            assert held == group.owners
            assert sum(len(member.held) for member in group.members.values()) == len(held)

    def teardown(self) -> None:
        """Nothing is left of members that are gone."""
        self.living.clear()
        for _ in range(5):
            self.driven.pass_time(self.driven.now_ms + 400_000)
        group = self.driven.groups.find(GROUP)
        if group is not None:
            assert not any([group.members, group.targets, group.owners, group.static_members, self.driven.groups._armed])
        assert self.driven.classic_group is None
        assert len(self.driven.groups.timers) == 0
        assert self.driven.classic.next_deadline_ms is None
        assert self.driven.classic._usage.metadata_bytes == 0
        super().teardown()


def expect(error: RequestError, *codes: ErrorCode) -> None:
    if error.code not in codes:
        raise error


TestMixedHistories = MixedHistories.TestCase


def test_a_member_keeps_its_partitions_when_the_group_converts_during_a_rebalance() -> None:
    """The rebalance has taken its assignment, but with incremental rebalancing it reads on meanwhile."""
    state = MixedHistories()
    state.start_classic(names=("t",), instance_id=None, protocol=COOPERATIVE)
    state.everybody_steps(rounds=1)
    second = state.start_classic(names=("t",), instance_id=None, protocol=COOPERATIVE)
    state.everybody_steps(rounds=2)
    state.leaves(process=second)
    state.start_consumer(fails=False, instance_id=None, names=("t",))
    state.no_partition_has_two_readers()
    state.everything_finds_its_reader(rejoins=False)


def test_partitions_are_assigned_when_a_static_member_converts_a_group_that_had_no_assignment_yet() -> None:
    state = MixedHistories()
    state.start_classic(names=("t",), instance_id=None, protocol=EAGER)
    state.start_classic(names=("t", "u"), instance_id="x", protocol=EAGER)
    state.everybody_steps(rounds=1)
    state.start_consumer(fails=False, instance_id="x", names=("t", "u"))
    state.everything_finds_its_reader(rejoins=False)


def test_a_topic_that_the_classic_group_did_not_know_is_assigned_when_a_static_member_converts_it() -> None:
    state = MixedHistories()
    state.start_classic(names=("t", "u"), instance_id="x", protocol=EAGER)
    state.create_or_grow(name="u", partitions=1)
    state.start_consumer(fails=False, instance_id="x", names=("t", "u"))
    state.everything_finds_its_reader(rejoins=False)
