"""The table of a transactional id's states, every step against it, and producer ids, which are given out once."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import attrs
import pytest
import trio
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState
from triolog.protocol.errors import ErrorCode, InvalidTxnStateError, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import FIRST_PRODUCER_ID, MAX_CHECKPOINT_BYTES, PRODUCER_ID_BLOCK_FILE
from triolog.server.transactions import transaction_states as steps
from triolog.server.transactions.producer_ids import BLOCK_IDS

from tests.support.brokers import PARTITION, one_partition, running_broker
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS

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


async def test_ids_are_unique_and_a_block_is_one_write(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        ids = [await new_id(broker) for _ in range(BLOCK_IDS)]
        assert ids == list(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + BLOCK_IDS)), "Kafka counts from 0"
        assert fs.count("rename", f"{PRODUCER_ID_BLOCK_FILE}.tmp") == 1
        assert await new_id(broker) == FIRST_PRODUCER_ID + BLOCK_IDS
        assert fs.count("rename", f"{PRODUCER_ID_BLOCK_FILE}.tmp") == 2


async def test_a_restart_gives_out_no_id_again(tmp_path: Path) -> None:
    seen: list[int] = []

    async def ask(broker: Broker) -> None:
        seen.append(await new_id(broker))

    for _ in range(3):
        async with running_broker(tmp_path) as broker, trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask, broker)
    assert len(set(seen)) == 60


async def test_after_a_crash_no_id_is_given_out_again(tmp_path: Path) -> None:
    """What a killed server leaves behind is a copy of its directory without the end."""
    async with running_broker(tmp_path / "running") as broker:
        given = [await new_id(broker) for _ in range(3)]
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
    async with running_broker(tmp_path / "killed") as broker:
        assert await new_id(broker) > max(given)


async def test_the_highest_number_of_all_directories_counts(tmp_path: Path) -> None:
    for name, number in (("a", FIRST_PRODUCER_ID + 5000), ("b", FIRST_PRODUCER_ID + 7000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / PRODUCER_ID_BLOCK_FILE).write_text(f"0\n1\n{number}\n")
    async with running_broker(tmp_path / "a", tmp_path / "b") as broker:
        assert await new_id(broker) == FIRST_PRODUCER_ID + 7000
    for name in "ab":
        assert (tmp_path / name / PRODUCER_ID_BLOCK_FILE).read_text() == f"0\n1\n{FIRST_PRODUCER_ID + 7000 + BLOCK_IDS}\n"


async def test_an_id_that_a_log_holds_is_not_given_out(tmp_path: Path) -> None:
    """As in a directory that Kafka wrote, which gave its ids out elsewhere."""
    batch = build_batch([(START_MS, None, b"v", ())], producer_id=FIRST_PRODUCER_ID + 41_000, producer_epoch=3, base_sequence=0)
    async with one_partition(tmp_path) as broker:
        await broker.writer.append(PARTITION, batch)
    async with running_broker(tmp_path) as broker:
        assert await new_id(broker) == FIRST_PRODUCER_ID + 41_001


async def test_a_block_that_cannot_be_read_or_written_gives_out_nothing(tmp_path: Path, fs: GateFileSystem) -> None:
    for size in (9, MAX_CHECKPOINT_BYTES + 1):
        (tmp_path / PRODUCER_ID_BLOCK_FILE).write_text("no number")
        os.truncate(tmp_path / PRODUCER_ID_BLOCK_FILE, size)
        async with running_broker(tmp_path) as broker:
            with pytest.raises(RequestError, match=PRODUCER_ID_BLOCK_FILE):
                await new_id(broker)
    (tmp_path / PRODUCER_ID_BLOCK_FILE).unlink()
    async with running_broker(tmp_path, fs=fs) as broker:
        fs.fail("open", f"{PRODUCER_ID_BLOCK_FILE}.tmp", number=errno.ENOSPC)
        with pytest.raises(RequestError, match=r"^KAFKA_STORAGE_ERROR.*No space left"):
            await new_id(broker)
        assert await new_id(broker) == FIRST_PRODUCER_ID
