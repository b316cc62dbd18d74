"""The table of a transactional id's states and every step against it, producer ids, and transactions that the coordinators end
by themselves: a producer can continue after them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState
from triolog.protocol.errors import ErrorCode, InvalidTxnStateError, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.internal_topic import store
from triolog.server.storage.disk.checkpoints import (
    FIRST_PRODUCER_ID,
    MAX_CHECKPOINT_BYTES,
    PRODUCER_ID_BLOCK_FILE,
    ProducerIdBlock,
    block_apart,
    read_producer_id_block,
    write_producer_id_block,
)
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.transactions import transaction_states as steps
from triolog.server.transactions.transaction_states import LAST_CLIENT_EPOCH, prepared
from triolog.server.transactions.transactional_ids import BLOCK_IDS

from tests.server.listeners.test_turns import short_turns
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TIMEOUT_MS, TransactionalProducer, committed_values, is_stable

S = TransactionState
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
V2 = steps.EPOCH_PER_TRANSACTION
"""An epoch for each transaction (KIP-890)."""
FENCED = dict.fromkeys((True, False), ErrorCode.PRODUCER_FENCED)


def value(state: TransactionState = S.EMPTY, **changes: object) -> TransactionLogValue:
    base = TransactionLogValue(producer_id=7, producer_epoch=3, timeout_ms=1000, state=state, last_update_ms=10, start_ms=5)
    return attrs.evolve(base, **changes)  # type: ignore[arg-type]


ILLEGAL = {
    *((None, state) for state in S if state is not S.EMPTY),
    *((S.DEAD, state) for state in S),
    *((S.PREPARE_COMMIT, state) for state in S if state is not S.COMPLETE_COMMIT),
    *((S.PREPARE_ABORT, state) for state in S if state is not S.COMPLETE_ABORT),
    *((state, S.PREPARE_COMMIT) for state in S if state is not S.ONGOING),
    *((state, S.COMPLETE_COMMIT) for state in S if state is not S.PREPARE_COMMIT),
    *((state, S.COMPLETE_ABORT) for state in S if state is not S.PREPARE_ABORT),
    (S.ONGOING, S.EMPTY),
    (S.ONGOING, S.DEAD),
}


def test_steps_around_a_decision_are_bugs_and_all_others_are_legal() -> None:
    assert steps.IDLE_STATES | steps.PREPARED_STATES | {S.ONGOING, S.DEAD} == set(S)
    for before, after in product([None, *S], S):
        state = None if before is None else value(before)
        with pytest.raises(AssertionError, match="cannot go from") if (before, after) in ILLEGAL else nullcontext():
            steps.check_transition(state, after)


@pytest.mark.parametrize(
    "before", [None, value(producer_epoch=steps.LAST_CLIENT_EPOCH), value(producer_epoch=steps.LAST_CLIENT_EPOCH + 1)]
)
def test_a_new_id_and_an_exhausted_one_begin_with_a_new_producer_id(before: TransactionLogValue | None) -> None:
    assert before is None or steps.is_epoch_exhausted(before)
    restarted = steps.started(
        value(S.COMPLETE_COMMIT, partitions=frozenset({A})), timeout_ms=50, now_ms=99, new_producer_id=None
    )
    assert restarted == TransactionLogValue(producer_id=7, producer_epoch=4, timeout_ms=50, last_update_ms=99)
    after = steps.started(before, timeout_ms=50, now_ms=99, new_producer_id=8)
    assert (after.producer_id, after.producer_epoch, after.state) == (8, 0, S.EMPTY)


def test_the_first_partition_begins_a_transaction_and_forgets_the_last_one() -> None:
    after = steps.joined(value(S.COMPLETE_ABORT, partitions=frozenset({B})), [A], now_ms=99)
    assert (after.state, after.partitions, after.start_ms) == (S.ONGOING, frozenset({A}), 99)
    further = steps.joined(after, [B], now_ms=100)
    assert (further.partitions, further.start_ms, further.last_update_ms) == (frozenset({A, B}), 99, 100)


@pytest.mark.parametrize("commit", [True, False])
def test_an_outcome_is_decided_and_then_complete(commit: bool) -> None:
    decided = steps.prepared(value(S.ONGOING, partitions=frozenset({A})), commit=commit, now_ms=99)
    assert steps.is_commit(decided) is commit
    assert (decided.partitions, decided.producer_epoch) == (frozenset({A}), 3)
    done = steps.completed(decided, now_ms=100)
    assert done.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert done.partitions == frozenset()
    of_version_2 = steps.prepared(value(S.ONGOING), commit=commit, now_ms=99, client_version=V2)
    assert (of_version_2.producer_id, of_version_2.producer_epoch, of_version_2.client_version) == (7, 4, V2)
    assert steps.completed(of_version_2, now_ms=100).producer_epoch == 4
    fenced = steps.prepared(value(S.ONGOING, producer_epoch=steps.LAST_CLIENT_EPOCH), commit=False, now_ms=99, fence=True)
    assert fenced.producer_epoch == steps.LAST_CLIENT_EPOCH + 1, "an abort that nobody requested"


@pytest.mark.parametrize("commit", [True, False])
def test_ending_is_done_once_and_never_the_other_way(commit: bool) -> None:
    same = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    for state in set(S) - {S.DEAD}:
        if state in (S.ONGOING, same[0]):
            assert steps.needs_end("id", value(state), commit=commit), state
        elif state in (S.EMPTY, same[1]):
            assert not steps.needs_end("id", value(state), commit=commit), state
        else:
            with pytest.raises(InvalidTxnStateError, match=state.name):
                steps.needs_end("id", value(state), commit=commit)


def test_behind_the_last_epoch_the_next_producer_id_begins() -> None:
    last = value(S.ONGOING, producer_epoch=steps.LAST_CLIENT_EPOCH)
    decided = steps.prepared(last, commit=True, now_ms=99, client_version=V2, new_producer_id=8)
    assert (decided.producer_id, decided.producer_epoch, decided.next_producer_id) == (7, steps.LAST_CLIENT_EPOCH + 1, 8)
    done = steps.completed(decided, now_ms=100)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id, done.next_producer_id) == (8, 0, 7, -1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        (value(S.ONGOING), (7, 3), {True: True, False: True}),
        (value(S.ONGOING, client_version=V2), (7, 2), FENCED),
        (value(S.ONGOING), (7, 4), FENCED),
        (value(S.EMPTY), (7, 3), {True: ErrorCode.INVALID_TXN_STATE, False: True}),
        (value(S.EMPTY), (7, 2), FENCED),
        (value(S.PREPARE_COMMIT, client_version=V2), (7, 2), {True: True, False: ErrorCode.INVALID_TXN_STATE}),
        (value(S.COMPLETE_COMMIT, client_version=V2), (7, 2), {True: False, False: ErrorCode.INVALID_TXN_STATE}),
        (value(S.COMPLETE_COMMIT, client_version=V2), (7, 3), {True: ErrorCode.INVALID_TXN_STATE, False: True}),
        (value(S.COMPLETE_ABORT, client_version=V2), (7, 2), {True: ErrorCode.INVALID_TXN_STATE, False: False}),
        (value(S.COMPLETE_ABORT, client_version=V2), (7, 3), {True: ErrorCode.INVALID_TXN_STATE, False: True}),
        (value(S.COMPLETE_ABORT, client_version=V2), (7, 1), FENCED),
        (
            value(S.COMPLETE_COMMIT, client_version=V2, producer_id=8, producer_epoch=0, previous_producer_id=7),
            (7, steps.LAST_CLIENT_EPOCH),
            {True: False, False: ErrorCode.INVALID_TXN_STATE},
        ),
    ],
)
def test_the_epoch_tells_a_call_that_is_made_again_from_the_next_one(
    known: TransactionLogValue, asked: tuple[int, int], expected: dict[bool, bool | ErrorCode], commit: bool
) -> None:
    outcome = expected[commit]
    if isinstance(outcome, ErrorCode):
        with pytest.raises(RequestError) as refused:
            steps.needs_end_with_next_epoch("id", known, *asked, commit=commit)
        assert refused.value.code is outcome
    else:
        assert steps.needs_end_with_next_epoch("id", known, *asked, commit=commit) is outcome


def test_only_the_current_producer_gets_the_next_epoch_also_when_it_asks_again() -> None:
    for expected in ((7, 3), (7, 2), (7, 1), (8, 3), (6, 2), (7, -1)):
        is_allowed = expected in ((7, 3), (7, 2))
        assert bool(steps.next_epoch_error(value(last_producer_epoch=2), expected)) is not is_allowed, expected


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((7, 3), None),
        ((7, 2), ErrorCode.PRODUCER_FENCED),
        ((6, 3), ErrorCode.PRODUCER_FENCED),
        ((5, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((-1, -1), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_holder_is_told_apart_from_the_one_before_and_from_others(producer: tuple[int, int], code: ErrorCode | None) -> None:
    rotated, of_kafka = value(previous_producer_id=6), value(previous_producer_id=7)
    for known in {7: (value(), rotated, of_kafka), -1: (value(), rotated)}.get(producer[0], (rotated,)):
        if code is None:
            assert steps.check_producer("id", known, *producer) is known
            continue
        with pytest.raises(RequestError) as refused:
            steps.check_producer("id", known, *producer)
        assert refused.value.code is code


def test_previous_producer_id_counts_only_with_its_last_epoch_and_until_the_next_is_used() -> None:
    rotated = value(previous_producer_id=6, last_producer_epoch=steps.LAST_CLIENT_EPOCH, producer_epoch=0)
    used = steps.joined(rotated, [A], now_ms=99)
    for expected in ((7, 0), (6, steps.LAST_CLIENT_EPOCH), (6, 3), (7, steps.LAST_CLIENT_EPOCH)):
        is_allowed = expected in ((7, 0), (6, steps.LAST_CLIENT_EPOCH))
        assert bool(steps.next_epoch_error(rotated, expected)) is not is_allowed, expected
        assert bool(steps.next_epoch_error(used, expected)) is not (expected == (7, 0)), expected


async def new_id(broker: Broker) -> int:
    """The id of a producer without transactions; such a one has epoch 0 always."""
    producer_id, epoch = await broker.producers.init(None, 0)
    assert epoch == 0
    return producer_id


async def test_ids_are_unique_and_a_block_is_one_write(fast_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(fast_path, fs=fs) as broker:
        ids = [await new_id(broker) for _ in range(BLOCK_IDS)]
        assert ids == list(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + BLOCK_IDS)), "Kafka counts from 0"
        assert fs.count("rename", f"{PRODUCER_ID_BLOCK_FILE}.tmp") == 1
        assert await new_id(broker) == FIRST_PRODUCER_ID + BLOCK_IDS
        assert fs.count("rename", f"{PRODUCER_ID_BLOCK_FILE}.tmp") == 2


async def test_a_restart_gives_out_no_id_again(fast_path: Path) -> None:
    seen: list[int] = []

    async def ask(broker: Broker) -> None:
        seen.append(await new_id(broker))

    for _ in range(3):
        async with running_broker(fast_path) as broker, trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask, broker)
    assert len(set(seen)) == 60


async def test_after_a_crash_no_id_is_given_out_again(fast_path: Path) -> None:
    """What a killed server leaves behind is a copy of its directory without the end."""
    async with running_broker(fast_path / "running") as broker:
        given = [await new_id(broker) for _ in range(3)]
        shutil.copytree(fast_path / "running", fast_path / "killed")
    async with running_broker(fast_path / "killed") as broker:
        assert await new_id(broker) > max(given)


async def test_a_copy_gives_out_no_epoch_that_the_original_may_have_given_out(fast_path: Path) -> None:
    """The holder of the known epoch continues. It ends its transaction with a new producer id, and may repeat that request."""
    async with running_broker(fast_path) as broker:
        holders = {name: await broker.producers.init(name, TIMEOUT_MS) for name in "abc"}
    fs = OsFileSystem()
    own = block_apart(read_producer_id_block(fs, str(fast_path)).first_free)
    write_producer_id_block(fs, str(fast_path), own, durable=True)
    async with one_partition(fast_path) as broker:
        assert (await broker.producers.init("a", TIMEOUT_MS)) == (own.first_own, 0)
        assert (await broker.producers.init("b", TIMEOUT_MS, holders["b"])) == (own.first_own + 1, 0)
        holder = TransactionalProducer(broker, "c", *holders["c"])
        await holder.produce(PARTITION, "one")
        ended = partial(broker.transactions.end, *holder.identity, commit=True, client_version=V2)
        assert await ended() == (own.first_own + 2, 0)
        assert await ended() == (own.first_own + 2, 0)
        assert await committed_values(broker, PARTITION) == ["one"]
    async with running_broker(fast_path) as broker:
        assert await broker.transactions.end(*holder.identity, commit=True, client_version=V2) == (own.first_own + 2, 0)
        for number, name in enumerate("abc"):
            assert await broker.producers.init(name, TIMEOUT_MS) == (own.first_own + number, 1)
            with pytest.raises(RequestError, match="does not belong to producer id") as raised:
                await broker.transactions.add_partitions(name, *holders[name], [PARTITION])
            assert raised.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_ids_begin_behind_those_of_a_directory_that_has_failed_since_the_start(fast_path: Path) -> None:
    """In a restored backup each directory begins at random. The ids of the rest were below the highest start, and the next
    start could not read that."""
    one, two = (fast_path / name for name in ("one", "two"))
    async with running_broker(one, two):
        pass
    low, high = sorted(block_apart(0).first_free for _ in range(2))
    for each, first in ((one, low), (two, high)):
        write_producer_id_block(OsFileSystem(), str(each), ProducerIdBlock(first, first), durable=True)
    async with running_broker(one, two) as broker:
        directories = broker._manager.log_directories
        directories.fail(directories.live[1], OSError(errno.EIO, "gone"))
        given = await new_id(broker)
        assert given >= high
    async with running_broker(one) as broker:
        assert await new_id(broker) > given


async def test_a_directory_that_cannot_say_whose_ids_it_has_does_not_speak_for_one_that_can(fast_path: Path) -> None:
    directories = [fast_path / name for name in ("a", "b")]
    async with running_broker(*directories) as broker:
        await broker.producers.init("id", TIMEOUT_MS)
    fs = OsFileSystem()
    own = block_apart(max(read_producer_id_block(fs, str(each)).first_free for each in directories))
    for each in directories:
        write_producer_id_block(fs, str(each), own, durable=True)
    for damaged in directories:
        kept = (damaged / PRODUCER_ID_BLOCK_FILE).read_bytes()
        (damaged / PRODUCER_ID_BLOCK_FILE).write_bytes(b"?")
        async with running_broker(*directories) as broker:
            with pytest.raises(RequestError, match=f"{damaged.name}/{PRODUCER_ID_BLOCK_FILE}"):
                await broker.producers.init("id", TIMEOUT_MS)
            (damaged / PRODUCER_ID_BLOCK_FILE).write_bytes(kept)
    async with running_broker(*directories) as broker:
        assert await broker.producers.init("id", TIMEOUT_MS) == (own.first_own, 0)


async def test_the_highest_number_of_all_directories_counts(fast_path: Path) -> None:
    for name, number in (("a", FIRST_PRODUCER_ID + 5000), ("b", FIRST_PRODUCER_ID + 7000)):
        (fast_path / name).mkdir()
        (fast_path / name / PRODUCER_ID_BLOCK_FILE).write_text(f"0\n1\n{number}\n")
    async with running_broker(fast_path / "a", fast_path / "b") as broker:
        assert await new_id(broker) == FIRST_PRODUCER_ID + 7000
    for name in "ab":
        assert (fast_path / name / PRODUCER_ID_BLOCK_FILE).read_text() == f"0\n1\n{FIRST_PRODUCER_ID + 7000 + BLOCK_IDS}\n"


async def test_an_id_that_a_log_holds_is_not_given_out(fast_path: Path) -> None:
    """As in a directory that Kafka wrote, which gave its ids out elsewhere."""
    batch = build_batch([(START_MS, None, b"v", ())], producer_id=FIRST_PRODUCER_ID + 41_000, producer_epoch=3, base_sequence=0)
    async with one_partition(fast_path) as broker:
        await broker.writer.append(PARTITION, batch)
    async with running_broker(fast_path) as broker:
        assert await new_id(broker) == FIRST_PRODUCER_ID + 41_001


async def test_a_block_that_cannot_be_read_or_written_gives_out_nothing(fast_path: Path, fs: GateFileSystem) -> None:
    for size in (9, MAX_CHECKPOINT_BYTES + 1):
        (fast_path / PRODUCER_ID_BLOCK_FILE).write_text("no number")
        os.truncate(fast_path / PRODUCER_ID_BLOCK_FILE, size)
        async with running_broker(fast_path) as broker:
            with pytest.raises(RequestError, match=PRODUCER_ID_BLOCK_FILE):
                await new_id(broker)
    (fast_path / PRODUCER_ID_BLOCK_FILE).unlink()
    async with running_broker(fast_path, fs=fs) as broker:
        fs.fail("open", f"{PRODUCER_ID_BLOCK_FILE}.tmp", number=errno.ENOSPC)
        with pytest.raises(RequestError, match=r"^KAFKA_STORAGE_ERROR.*No space left"):
            await new_id(broker)
        assert await new_id(broker) == FIRST_PRODUCER_ID


Abort = Callable[[Broker], Awaitable[None]]


@pytest.fixture
async def broker(fast_path: Path, fs: GateFileSystem) -> AsyncIterator[Broker]:
    async with running_broker(fast_path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        yield broker


def state_of(broker: Broker, name: str = "mover") -> TransactionLogValue:
    value = broker.transactions.ids.owners[name].value
    assert value is not None
    return value


async def time_out(broker: Broker) -> None:
    broker.transactions.ids.owners["mover"].deadline = 0.0
    await broker.transactions.finish_overdue()


async def abort_by_hand(broker: Broker) -> None:
    await broker.transactions.abort("mover")


ABORTS: Final = pytest.mark.parametrize("abort", [time_out, abort_by_hand])


async def start_at(broker: Broker, epoch: int) -> TransactionalProducer:
    producer = await TransactionalProducer.start(broker)
    broker.transactions.ids.owners["mover"].value = attrs.evolve(state_of(broker), producer_epoch=epoch)
    return attrs.evolve(producer, producer_epoch=epoch)


async def init_again(producer: TransactionalProducer) -> tuple[int, int]:
    return await producer.broker.producers.init("mover", TIMEOUT_MS, (producer.producer_id, producer.producer_epoch))


async def code_of(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(RequestError) as raised:
        await call
    return raised.value.code


async def continue_as(producer: TransactionalProducer, identity: tuple[int, int]) -> None:
    new = attrs.evolve(producer, producer_id=identity[0], producer_epoch=identity[1])
    new.sequences.clear()
    await new.produce(PARTITION, "next")
    await producer.broker.transactions.end(*new.identity, commit=True, client_version=2)
    assert await committed_values(producer.broker, PARTITION) == ["next"]


@ABORTS
@pytest.mark.parametrize("epoch", [0, 7, LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH])
async def test_producer_aborts_what_the_server_has_aborted_and_continues(broker: Broker, abort: Abort, epoch: int) -> None:
    producer = await start_at(broker, epoch)
    await producer.produce(PARTITION, "late")
    await abort(broker)
    assert state_of(broker).state is TransactionState.COMPLETE_ABORT
    assert await code_of(producer.produce(PARTITION, "later")) is ErrorCode.PRODUCER_FENCED
    end = broker.transactions.end
    assert await code_of(end(*producer.identity, commit=True, client_version=2)) is ErrorCode.INVALID_TXN_STATE
    identity = await end(*producer.identity, commit=False, client_version=2)
    assert await end(*producer.identity, commit=False, client_version=2) == identity, "again: the same"
    if epoch == LAST_CLIENT_EPOCH:
        assert identity[0] != producer.producer_id
    else:
        assert identity == (producer.producer_id, epoch + 1)
    await continue_as(producer, identity)


@ABORTS
@pytest.mark.parametrize("epoch", [0, LAST_CLIENT_EPOCH])
async def test_producer_starts_again_under_its_id_and_continues(broker: Broker, abort: Abort, epoch: int) -> None:
    producer = await start_at(broker, epoch)
    await producer.produce(PARTITION, "late")
    await abort(broker)
    assert await code_of(producer.commit()) is ErrorCode.PRODUCER_FENCED, "EndTxn before version 5"
    identity = await init_again(producer)
    assert await init_again(producer) == identity
    assert identity == (state_of(broker).producer_id, 0 if epoch == LAST_CLIENT_EPOCH else epoch + 1)
    await continue_as(producer, identity)


async def test_new_instance_after_a_timeout_fences_the_old_one(broker: Broker) -> None:
    old = await TransactionalProducer.start(broker)
    await old.produce(PARTITION, "late")
    await time_out(broker)
    new = await TransactionalProducer.start(broker)
    for call in (init_again(old), broker.transactions.end(*old.identity, commit=False, client_version=2)):
        assert await code_of(call) is ErrorCode.PRODUCER_FENCED
    await continue_as(new, (new.producer_id, new.producer_epoch))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("epoch", [7, LAST_CLIENT_EPOCH])
@pytest.mark.parametrize("is_open", [False, True])
async def test_lost_answer_to_a_start_is_given_again(fast_path: Path, epoch: int, is_restarted: bool, is_open: bool) -> None:
    async with running_broker(fast_path) as broker:
        await broker.topics.create(TOPIC, 2)
        producer = await start_at(broker, epoch)
        if is_open:
            await producer.produce(PARTITION, "open")
        first = await init_again(producer)
        assert (first[0] == producer.producer_id) is (epoch != LAST_CLIENT_EPOCH)
        assert await init_again(producer) == first
        if not is_restarted:
            await continue_as(producer, first)
    if is_restarted:
        async with running_broker(fast_path) as broker:
            producer = attrs.evolve(producer, broker=broker)
            assert await init_again(producer) == first
            await continue_as(producer, first)


@pytest.mark.parametrize("epoch", [7, LAST_CLIENT_EPOCH])
@pytest.mark.parametrize("by_end", [False, True])
async def test_identity_of_two_steps_ago_is_fenced_and_the_producer_is_not(broker: Broker, epoch: int, by_end: bool) -> None:
    old = await start_at(broker, epoch)
    if by_end:
        await old.produce(PARTITION, "one")
        identity = await broker.transactions.end(*old.identity, commit=True, client_version=2)
    else:
        identity = await init_again(old)
    living = attrs.evolve(old, producer_id=identity[0], producer_epoch=identity[1])
    living.sequences.clear()
    await living.produce(PARTITION, "two")
    assert await code_of(init_again(old)) is ErrorCode.PRODUCER_FENCED, "while the next transaction is open"
    await broker.transactions.end(*living.identity, commit=True, client_version=2)
    assert await code_of(init_again(old)) is ErrorCode.PRODUCER_FENCED, "after it"
    assert (await committed_values(broker, PARTITION))[-1] == "two"


async def open_at(broker: Broker, epoch: int, name: str = "mover") -> TransactionalProducer:
    """Start a producer at an epoch, with an open transaction that is overdue."""
    producer = await TransactionalProducer.start(broker, name, timeout_ms=1000)
    owner = broker.transactions.ids.owners[name]
    assert owner.value is not None
    owner.value = attrs.evolve(owner.value, producer_epoch=epoch)
    producer.producer_epoch = epoch
    await producer.produce(PARTITION, name)
    owner.deadline = 0.0
    return producer


async def test_epoch_that_fences_belongs_to_no_producer(broker: Broker) -> None:
    last = await open_at(broker, LAST_CLIENT_EPOCH)
    await broker.transactions.finish_overdue()
    assert state_of(broker).state is TransactionState.COMPLETE_ABORT
    guess = attrs.evolve(last, producer_epoch=state_of(broker).producer_epoch)
    for producer in (last, guess):
        with pytest.raises(RequestError) as raised:
            await producer.produce(PARTITION, "zombie")
        assert raised.value.code is ErrorCode.PRODUCER_FENCED
    new = await TransactionalProducer.start(broker)
    assert new.producer_id != last.producer_id
    await new.produce(PARTITION, "new")
    await new.commit()
    assert await committed_values(broker, PARTITION) == ["new"]


def test_transaction_that_an_older_server_opened_with_the_last_epoch_can_be_aborted() -> None:
    value = TransactionLogValue(
        producer_id=7, producer_epoch=LAST_CLIENT_EPOCH + 1, timeout_ms=1, last_update_ms=1, state=TransactionState.ONGOING
    )
    assert prepared(value, commit=False, now_ms=2, fence=True).producer_epoch == LAST_CLIENT_EPOCH + 1


async def test_error_about_one_id_leaves_the_other_ids_alone(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    await open_at(broker, 0, "broken")
    await open_at(broker, 0, "whole")
    broken = broker.transactions.ids.owners["broken"]
    assert broken.value is not None
    whole, broken.value = broken.value, attrs.evolve(broken.value, partitions=None)  # a state that no step expects
    await broker.transactions.finish_overdue()
    assert state_of(broker, "whole").state is TransactionState.COMPLETE_ABORT
    assert "task=transaction-timeout name=broken" in caplog.text
    broken.value, broken.deadline = whole, 0.0
    await broker.transactions.finish_overdue()
    assert state_of(broker, "broken").state is TransactionState.COMPLETE_ABORT


OTHER: Final = TopicPartition(TOPIC, 1)
SLOW_LOG: Final = "topic-0/00000000000000000000.log"
LIMIT_S: Final = 900
IDS: Final = 300
HANGING: Final = 150


async def append_without_joining(broker: Broker, partition: TopicPartition = PARTITION, producer_id: int = 77) -> None:
    records = [(START_MS, None, b"lost", ())]
    batch = build_batch(records, producer_id=producer_id, producer_epoch=4, base_sequence=0, is_transactional=True)
    await broker.writer.append(partition, batch)


async def test_a_partition_without_markers_holds_up_nothing_else(
    broker: Broker, fs: GateFileSystem, mock_clock: MockClock
) -> None:
    for name, partition in (("slow", PARTITION), ("quick", OTHER)):
        producer = await TransactionalProducer.start(broker, name, timeout_ms=5000)
        await producer.produce(partition, name)
    quick = broker.transactions.ids.owners["quick"]
    with fs.hold("write", SLOW_LOG):
        mock_clock.jump(10)
        await until(lambda: quick.value is not None and quick.value.state is TransactionState.COMPLETE_ABORT)
        assert not is_stable(broker, PARTITION)
        again = await TransactionalProducer.start(broker, "again", timeout_ms=5000)
        await again.produce(OTHER, "again")
        mock_clock.jump(10)
        await until(lambda: is_stable(broker, OTHER))
    await until(lambda: is_stable(broker, PARTITION))


async def test_a_partition_that_takes_no_marker_holds_up_no_other_hanging_transaction(
    broker: Broker, fs: GateFileSystem, mock_clock: MockClock
) -> None:
    for partition in (PARTITION, OTHER):
        await append_without_joining(broker, partition)
    await broker._coordinators.hanging.abort_overdue()
    with fs.hold("write", SLOW_LOG):
        mock_clock.jump(LIMIT_S + 60)
        await until(lambda: is_stable(broker, OTHER))
        assert not is_stable(broker, PARTITION)
    await until(lambda: is_stable(broker, PARTITION))


async def test_a_look_for_hanging_transactions_takes_no_long_turn(broker: Broker) -> None:
    broker._coordinators._scope.cancel()
    for number in range(IDS):
        producer = await TransactionalProducer.start(broker, f"id-{number}")
        await broker.transactions.add_partitions(*producer.identity, [OTHER])
    for number in range(HANGING):
        await append_without_joining(broker, PARTITION, 2**50 + number)
    with short_turns():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker._coordinators.hanging.abort_overdue)
            nursery.start_soon(broker.transactions.finish_overdue)
    assert actor_of(broker).log.producers.first_unstable_offset == 0


async def append_unwatched(broker: Broker, producer_id: int = 77) -> None:
    """As a producer whose coordinator's log was left behind. From then on the test says when it is looked."""
    broker._coordinators._scope.cancel()
    await append_without_joining(broker, producer_id=producer_id)


async def abort_overdue(broker: Broker) -> int:
    return await broker._coordinators.hanging.abort_overdue()


async def test_a_transaction_without_owner_is_aborted_in_the_end(fast_path: Path, clock: Clock, mock_clock: MockClock) -> None:
    async with one_partition(fast_path, clock=clock) as broker:
        await append_unwatched(broker)
        await broker.writer.append(PARTITION, [(START_MS, None, b"behind", ())])
        assert await abort_overdue(broker) == 0
        assert (await broker.statistics()).open_transactions == 1
        mock_clock.jump(LIMIT_S - 1)
        clock.advance(365 * 86_400_000)
        assert await abort_overdue(broker) == 0
        assert await committed_values(broker, PARTITION) == []
        mock_clock.jump(1)
        assert await abort_overdue(broker) == 1
        assert is_stable(broker, PARTITION)
        assert await committed_values(broker, PARTITION) == ["behind"]
        assert (await broker.statistics()).open_transactions == 0
        assert await abort_overdue(broker) == 0


async def test_a_transaction_that_the_coordinator_knows_is_left_to_it(broker: Broker, mock_clock: MockClock) -> None:
    producer = await TransactionalProducer.start(broker, timeout_ms=900_000)
    await producer.produce(PARTITION, "a")
    assert not await broker._coordinators.hanging._hanging_on(actor_of(broker))
    assert broker.transactions.ids.may_be_open(producer.producer_id, PARTITION)
    assert not broker.transactions.ids.may_be_open(producer.producer_id, TopicPartition("other", 0))
    await producer.commit()
    assert not broker.transactions.ids.may_be_open(producer.producer_id, PARTITION)


async def test_another_transaction_of_the_producer_is_watched_anew(broker: Broker, mock_clock: MockClock) -> None:
    await append_unwatched(broker)
    assert await abort_overdue(broker) == 0
    mock_clock.jump(LIMIT_S / 2)
    await append_unwatched(broker, producer_id=78)
    await abort_overdue(broker)
    mock_clock.jump(LIMIT_S / 2)
    assert await abort_overdue(broker) == 1
    assert actor_of(broker).log.producers.first_unstable_offset == 1


@pytest.mark.parametrize("times", [1, 2])
async def test_a_failed_abort_is_tried_again(broker: Broker, fs: GateFileSystem, mock_clock: MockClock, times: int) -> None:
    await append_unwatched(broker)
    await abort_overdue(broker)
    mock_clock.jump(LIMIT_S)
    fs.fail("write", "topic-0/00000000000000000000.log", times=times)
    assert [await abort_overdue(broker) for _ in range(times + 1)] == [0] * times + [1]


async def test_a_transaction_that_began_while_the_abort_waited_stays_open(
    broker: Broker, fs: GateFileSystem, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """With the same epoch, behind the end of the one that was overdue."""
    await append_unwatched(broker)
    await abort_overdue(broker)
    mock_clock.jump(LIMIT_S)
    actor = actor_of(broker)
    ended = prepare_marker(producer_id=77, producer_epoch=4, commit=True, coordinator_epoch=0, now_ms=START_MS)
    records = [(START_MS, None, b"begun", ())]
    batch = build_batch(records, producer_id=77, producer_epoch=4, base_sequence=1, is_transactional=True)
    async with held(fs.hold("write", "topic-0/00000000000000000000.log"), store, actor, ended, lambda _: None) as nursery:
        nursery.start_soon(broker.writer.append, PARTITION, batch)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(abort_overdue, broker)
        await trio.testing.wait_all_tasks_blocked()
    assert actor.log.producers.ongoing == {77: 2}
    assert "producer 77" not in caplog.text
