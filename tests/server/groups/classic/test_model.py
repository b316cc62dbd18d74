"""Consumers that behave as real ones do, on a group that nobody tells what is coming: they join, sync, send heartbeats, change
their minds, leave, die, and come back; the log is slow or refuses; the server restarts."""

from __future__ import annotations

from typing import Any, Final

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic.values import GroupSettings, JoinAnswer, LeavingMember, SyncAnswer
from triolog.server.groups.values import GroupState

from tests.support.group_bench import GROUP, Bench

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 30_000
MAX_SIZE: Final = 4
HEARTBEAT_MS: Final = 3_000
INSTANCES: Final = ("one", "two")
PROTOCOLS: Final = ((("range", b"a"),), (("range", b"b"), ("sticky", b"b")), (("sticky", b"c"), ("range", b"c")))
AGAIN: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
GIVES_UP: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@attrs.define(eq=False)
class Consumer:
    """One client. It has one question open at a time."""

    bench: Bench
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    """None until it has one in its generation."""
    led: JoinAnswer | None = None
    caller: int | None = None
    """Who waits for it."""
    asked_ms: int = 0
    is_alive: bool = True

    @property
    def is_waiting(self) -> bool:
        return self.caller is not None and self.bench.is_waiting(self.caller)

    def reset(self, *, keeps_id: bool) -> None:
        """Everything but perhaps its member id is of no use any more; it joins next."""
        self.generation, self.assignment, self.led, self.caller = -1, None, None, None
        self.member_id = self.member_id if keeps_id else ""

    def refused(self, error: ErrorCode) -> None:
        """What clients do on errors: join again, anew, or not at all."""
        if error in GIVES_UP:
            self.is_alive = False
        else:
            assert error in (*AGAIN, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), error
            self.reset(keeps_id=error is not ErrorCode.UNKNOWN_MEMBER_ID)


class Groups(RuleBasedStateMachine):
    """See the module. What is stored in a generation is told to everybody, and never something else."""

    bench: Bench
    delay_ms: int

    def __init__(self) -> None:
        super().__init__()
        self.consumers: list[Consumer] = []
        self.generations: dict[tuple[int, int], tuple[str | None, str | None]] = {}
        """What was told of (life of the server, generation): protocol type and protocol."""
        self.leaders: dict[tuple[int, int], str] = {}
        self.stored_batches: dict[int, bytes] = {}
        """Whose assignment, of all that leaders brought, is the one of a generation."""
        self.life = 0
        self.batches = 0

    @initialize(
        delay_ms=st.sampled_from([0, 1_000]),
        stores_at_once=st.booleans(),
        instance_ids=st.lists(st.sampled_from([None, *INSTANCES]), max_size=3),
    )
    def begin(self, delay_ms: int, stores_at_once: bool, instance_ids: list[str | None]) -> None:
        """With a group that has come to rest, or none: most of what is interesting happens to one that stands."""
        self.delay_ms = delay_ms
        settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=MAX_SIZE)
        self.bench = Bench(settings, stores_at_once)
        for instance_id in instance_ids:
            self.start(PROTOCOLS[0], instance_id)
        for _ in range(6 if instance_ids else 0):
            self.all_go_on(2)
            self.time_passes(500)

    def alive(self) -> list[Consumer]:
        return [each for each in self.consumers if each.is_alive]

    def join(self, consumer: Consumer) -> None:
        consumer.asked_ms = self.bench.now_ms
        consumer.caller = self.bench.join(
            consumer.member_id,
            group_instance_id=consumer.instance_id,
            protocols=consumer.protocols,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            supports_skipping_assignment=consumer.instance_id == INSTANCES[0],
        )

    def sync(self, consumer: Consumer) -> None:
        led = consumer.led
        assignments: tuple[tuple[str, bytes], ...] = ()
        if led is not None and not led.skip_assignment:
            self.batches += 1
            assignments = tuple(
                (each.member_id, f"{self.batches}|{each.group_instance_id or each.member_id}".encode()) for each in led.members
            )
        consumer.asked_ms = self.bench.now_ms
        consumer.caller = self.bench.sync(
            consumer.member_id, consumer.generation, group_instance_id=consumer.instance_id, assignments=assignments
        )

    def act(self, consumer: Consumer) -> None:
        """Take the answer that has come, or do what is next."""
        if consumer.caller is not None:
            if consumer.is_waiting:
                return
            answer, consumer.caller = self.bench.answers[consumer.caller], None
            if isinstance(answer, JoinAnswer):
                self.take_join(consumer, answer)
            else:
                self.take_sync(consumer, answer)
        elif consumer.generation < 0:
            self.join(consumer)
        elif consumer.assignment is None:
            self.sync(consumer)
        else:
            error = self.bench.heartbeat(consumer.member_id, consumer.generation, consumer.instance_id)
            if error is not ErrorCode.NONE:
                consumer.refused(error)

    def take_join(self, consumer: Consumer, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            assert consumer.instance_id is None
            assert answer.member_id
            consumer.member_id = answer.member_id
            return
        if answer.error is not ErrorCode.NONE:
            consumer.refused(answer.error)
            return
        place = (self.life, answer.generation)
        said = (answer.protocol_type, answer.protocol)
        assert self.generations.setdefault(place, said) == said
        assert answer.protocol in dict(consumer.protocols)
        assert answer.generation > 0
        if answer.members and not answer.skip_assignment:
            assert answer.leader == answer.member_id
            assert self.leaders.setdefault(place, answer.member_id) == answer.member_id
            assert {each.member_id for each in answer.members} >= {answer.member_id}
        consumer.member_id, consumer.generation = answer.member_id, answer.generation
        consumer.led = answer if answer.members else None
        consumer.assignment = None

    def take_sync(self, consumer: Consumer, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            consumer.refused(answer.error)
            return
        batch, _, name = answer.assignment.partition(b"|")
        assert name.decode() == (consumer.instance_id or consumer.member_id)
        assert self.stored_batches.setdefault(consumer.generation, batch) == batch
        consumer.assignment = answer.assignment

    @precondition(lambda self: len(self.alive()) < MAX_SIZE + 1)
    @rule(protocols=st.sampled_from(PROTOCOLS), instance_id=st.sampled_from([None, None, *INSTANCES]))
    def start(self, protocols: tuple[tuple[str, bytes], ...], instance_id: str | None) -> None:
        """Another consumer; with the instance id of one that runs it fences that one off, by mistake or after a restart."""
        self.consumers.append(Consumer(self.bench, protocols, instance_id))
        self.act(self.consumers[-1])

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), times=st.integers(1, 4))
    def go_on(self, data: Any, times: int) -> None:
        consumer = data.draw(st.sampled_from(self.alive()))
        for _ in range(times):
            if consumer.is_alive:
                self.act(consumer)

    @rule(rounds=st.integers(1, 4))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for consumer in self.alive():
                self.act(consumer)

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def change(self, data: Any, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """A consumer subscribes to something else, and joins again; an answer that it waits for is of no use."""
        consumer = data.draw(st.sampled_from(self.alive()))
        consumer.protocols = protocols
        consumer.reset(keeps_id=True)
        self.act(consumer)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        consumer = data.draw(st.sampled_from(self.alive()))
        consumer.is_alive = False
        if consumer.member_id:
            self.bench.leave(LeavingMember(consumer.member_id, consumer.instance_id))

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def die(self, data: Any) -> None:
        data.draw(st.sampled_from(self.alive())).is_alive = False

    @rule(ms=st.sampled_from([100, HEARTBEAT_MS, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.let_log_work()
        self.bench.advance(ms)

    @precondition(lambda self: self.bench.waiting_stores)
    @rule(fails=st.booleans())
    def store(self, fails: bool) -> None:
        (self.bench.fail_store if fails else self.bench.store)()

    def let_log_work(self) -> None:
        """However slow the log is, it does not take as long as anything that is waited for."""
        while self.bench.waiting_stores:
            self.bench.store()

    @rule()
    def restart(self) -> None:
        """Whoever waits has lost its connection, and asks again."""
        self.bench.restart()
        self.life += 1
        for consumer in self.alive():
            consumer.caller = None

    @invariant()
    def nobody_waits_for_longer_than_he_may(self) -> None:
        longest_ms = REBALANCE_MS + 2 * getattr(self, "delay_ms", 0)
        for consumer in self.alive():
            assert not consumer.is_waiting or self.bench.now_ms - consumer.asked_ms <= longest_ms

    @invariant()
    def nothing_grows(self) -> None:
        if not hasattr(self, "bench"):
            return
        groups = self.bench.groups
        group, timers = groups._groups.get(GROUP), groups._rebalance.timers
        assert len(groups) <= 1
        assert timers.queue_length <= 2 * len(timers) + 64 + MAX_SIZE
        assert len(groups._stores) == len(self.bench.waiting_stores)
        assert len(groups._joining.returns) + len(groups._assignments._stored) <= len(self.bench.waiting_stores)
        if group is None:
            assert len(timers) == groups._usage.metadata_bytes == 0
            return
        members = group.members.values()
        assert len(group.members) <= 2 * MAX_SIZE
        assert group.awaiting_join_count <= MAX_SIZE
        assert len(group.pending_joins) <= MAX_SIZE
        assert len(timers) <= len(members) + len(group.pending_joins) + 2
        assert groups._usage.metadata_bytes == sum(each.metadata_bytes for each in members)

    @invariant()
    def the_parts_of_a_group_agree(self) -> None:
        group = self.bench.groups._groups.get(GROUP) if hasattr(self, "bench") else None
        if group is None:
            return
        members = group.members.values()
        assert all(member.member_id == key for key, member in group.members.items())
        assert group.awaiting_join_count == sum(member.is_awaiting_join for member in members)
        assert group.static_members == {each.group_instance_id: each.member_id for each in members if each.is_static}
        assert not group.pending_joins & group.members.keys()
        assert group.pending_syncs <= group.members.keys()
        assert (group.leader in group.members) if members else group.leader is None
        assert bool(members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert all(member.metadata(group.protocol) is not None for member in members)
        assert (group.initial_delay is not None) == (group.is_initial_rebalance and self.delay_ms > 0)
        for member in members:
            assert not (member.is_awaiting_join and member.is_awaiting_sync)
            assert not member.is_awaiting_sync or group.state is GroupState.COMPLETING_REBALANCE

    def teardown(self) -> None:
        """Left alone, those who are alive come to agree; without them the group is empty and waits for nothing."""
        if not hasattr(self, "bench"):
            return
        for _ in range((3 * REBALANCE_MS + 2 * SESSION_MS) // 1_000):
            for consumer in self.alive():
                self.act(consumer)
                self.act(consumer)
            self.let_log_work()
            self.bench.advance(1_000)
        alive = self.alive()
        assert sorted(self.bench.member_ids()) == sorted(each.member_id for each in alive)
        assert all(each.assignment is not None for each in alive)
        assert len({each.generation for each in alive}) <= 1
        assert self.bench.state() in ((GroupState.STABLE,) if alive else (GroupState.EMPTY, GroupState.DEAD))
        self.bench.advance(2 * SESSION_MS)
        self.let_log_work()
        self.bench.take(self.bench.groups.store_again())
        self.let_log_work()
        assert self.bench.member_ids() == []
        assert self.bench.groups.next_deadline_ms is None
        assert not self.bench.log or self.bench.log[-1].value.members == []


TestGroups = Groups.TestCase
