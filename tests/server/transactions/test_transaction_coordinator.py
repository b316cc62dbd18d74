"""Transactions over several partitions and a group: whole or absent, whoever dies, and fenced off in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.coordinator import transactions
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.partitioners import coordinator_partition
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.broker import Broker, FetchPartition, ReaderView
from triolog.server.logs.internal_topic import INTERNAL_TOPIC_CONFIG, store
from triolog.server.storage.log.prepare import prepare_append
from triolog.server.storage.producers.producer_cursor import AppendOrigin
from triolog.server.transactions.transaction_states import IDLE_STATES, LAST_CLIENT_EPOCH

from tests.support.brokers import LARGE, PARTITION, TOPIC, actor_of, records_from, running_broker, until
from tests.support.counting_fs import made_directories
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TIMEOUT_MS, TransactionalProducer, committed_offset, committed_values, is_stable

OTHER: Final = TopicPartition(TOPIC, 1)
STATES: Final = TopicPartition(transactions.TRANSACTIONS_TOPIC, 0)
GROUP: Final = "group"
DAY_MS: Final = 86_400_000


@asynccontextmanager
async def two_partitions(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker with the topic TOPIC of two partitions; it is made when it is not there."""
    async with running_broker(directory, **settings) as broker:
        if TOPIC not in broker.topics.names():
            await broker.topics.create(TOPIC, 2)
        yield broker


@pytest.fixture
async def broker(fast_path: Path, fs: GateFileSystem) -> AsyncIterator[Broker]:
    async with two_partitions(fast_path, fs=fs) as broker:
        yield broker


def state_of(broker: Broker, transactional_id: str = "mover") -> transactions.TransactionLogValue:
    value = broker.transactions.ids.owners[transactional_id].value
    assert value is not None
    return value


def is_idle(broker: Broker, transactional_id: str = "mover") -> bool:
    """No transaction of the id is open or ending, and nobody works on it."""
    owner = broker.transactions.ids.owners[transactional_id]
    return owner.value is not None and owner.value.state in IDLE_STATES and not owner.is_busy


async def markers(broker: Broker, partition: TopicPartition) -> int:
    """Control batches in the partition's log."""
    answer = (await broker.reader.fetch([FetchPartition(partition, 0, LARGE)], max_bytes=LARGE))[0]
    assert answer.fetched is not None
    return sum(header.is_control for header, _ in iter_batches(answer.fetched.records))


def refused(code: ErrorCode) -> pytest.RaisesExc[RequestError]:
    return pytest.RaisesExc(RequestError, check=lambda error: error.code is code)


async def late_batch_is_refused(producer: TransactionalProducer) -> None:
    """By the log: its partition has joined, so the coordinator is not asked again."""
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    batch = build_batch([(START_MS, None, b"late", ())], **identity, base_sequence=1, is_transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        await producer.broker.writer.append(PARTITION, batch)


async def test_the_log_holds_every_step_in_order(broker: Broker) -> None:
    producer = await TransactionalProducer.start(broker)
    await producer.produce(PARTITION, "a")
    await producer.produce(PARTITION, "b")
    await producer.produce(OTHER, "c")
    await producer.commit()
    await producer.produce(PARTITION, "d")
    await producer.abort()
    written = await records_from(broker, STATES)
    states = [transactions.decode_transaction_value(record.value or b"").state for record in written]
    assert " ".join(state.name for state in states) == (
        "EMPTY ONGOING ONGOING PREPARE_COMMIT COMPLETE_COMMIT ONGOING PREPARE_ABORT COMPLETE_ABORT"
    )
    assert {record.key for record in written} == {transactions.encode_transaction_key("mover")}
    assert broker.topics.describe(transactions.TRANSACTIONS_TOPIC).config == INTERNAL_TOPIC_CONFIG


async def test_ending_again_the_same_way_is_fine_and_writes_nothing(broker: Broker) -> None:
    producer = await TransactionalProducer.start(broker)
    await producer.commit()
    await producer.abort()
    await producer.produce(PARTITION, "a")
    await producer.commit()
    end = broker.reader.snapshot(STATES).log_end_offset
    await producer.commit()
    with refused(ErrorCode.INVALID_TXN_STATE):
        await producer.abort()
    assert broker.reader.snapshot(STATES).log_end_offset == end
    assert await markers(broker, PARTITION) == 1


async def test_partitions_that_join_at_once_all_join(fast_path: Path) -> None:
    async with running_broker(fast_path, topic={"segment.index.bytes": "100"}) as broker:
        await broker.topics.create(TOPIC, 20)
        producer = await TransactionalProducer.start(broker)
        partitions = [TopicPartition(TOPIC, number) for number in range(20)]
        async with trio.open_nursery() as nursery:
            for each in partitions:
                nursery.start_soon(producer.produce, each, "v")
        assert state_of(broker).partitions == frozenset(partitions)
        await producer.commit()
        assert [await committed_values(broker, each) for each in partitions] == [["v"]] * 20


async def test_a_partition_has_joined_before_its_first_batch_is_appended(fast_path: Path, fs: GateFileSystem) -> None:
    async with two_partitions(fast_path, fs=fs, durability="fsync") as broker:
        producer = await TransactionalProducer.start(broker)
        async with held(fs.hold("sync", ".log"), producer.produce, PARTITION, "a"):
            assert broker.reader.snapshot(PARTITION).log_end_offset == 0
            assert state_of(broker).state is transactions.TransactionState.EMPTY
        assert broker.reader.snapshot(PARTITION).log_end_offset == 1


async def test_ids_have_their_partition_of_the_topic(fast_path: Path) -> None:
    async with two_partitions(fast_path, transaction_state_log_num_partitions=5) as broker:
        for name in ("a", "b", "c", "d", "e", "f"):
            await TransactionalProducer.start(broker, name)
            place = TopicPartition(transactions.TRANSACTIONS_TOPIC, coordinator_partition(name, 5))
            assert (await records_from(broker, place))[-1].key == transactions.encode_transaction_key(name)
    async with two_partitions(fast_path) as broker:
        assert {name: (await TransactionalProducer.start(broker, name)).producer_epoch for name in "abcdef"} == dict.fromkeys(
            "abcdef", 1
        )


async def test_a_new_instance_fences_off_the_old_one_and_aborts_what_it_left_open(broker: Broker) -> None:
    old = await TransactionalProducer.start(broker)
    await old.produce(PARTITION, "old")
    new = await TransactionalProducer.start(broker)
    assert new.producer_id == old.producer_id
    assert new.producer_epoch == old.producer_epoch + 2
    for call in (old.produce(PARTITION, "x"), old.commit(), old.abort(), old.commit_offset(GROUP, PARTITION, 1)):
        with refused(ErrorCode.PRODUCER_FENCED):
            await call
    await late_batch_is_refused(old)
    with refused(ErrorCode.PRODUCER_FENCED):
        await broker.producers.init("mover", TIMEOUT_MS, (old.producer_id, old.producer_epoch))
    await new.produce(PARTITION, "new")
    await new.commit()
    assert await committed_values(broker, PARTITION) == ["new"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"transactional_id": "other"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_id": 12345}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 5}, ErrorCode.PRODUCER_FENCED),
    ],
)
async def test_who_is_not_the_producer_cannot_act(broker: Broker, change: dict[str, Any], code: ErrorCode) -> None:
    producer = attrs.evolve(await TransactionalProducer.start(broker), **change)
    for call in (producer.produce(PARTITION, "x"), producer.commit(), producer.commit_offset(GROUP, PARTITION, 1)):
        with refused(code):
            await call


async def test_a_name_or_a_timeout_that_cannot_be_is_refused(broker: Broker) -> None:
    for timeout_ms in (0, -1, 900_001):
        with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
            await broker.producers.init("mover", timeout_ms)
    for name in ("", "t" * 40_000):
        with refused(ErrorCode.INVALID_REQUEST):
            await broker.producers.init(name, TIMEOUT_MS)
    assert transactions.TRANSACTIONS_TOPIC not in broker.topics.names()


async def test_epochs_go_up_until_a_new_producer_id_is_due(broker: Broker) -> None:
    first = await TransactionalProducer.start(broker)
    named = first.producer_id, first.producer_epoch
    for _ in range(2):
        assert await broker.producers.init("mover", TIMEOUT_MS, named) == (first.producer_id, 1), "the same again"
    assert [(await TransactionalProducer.start(broker)).producer_epoch for _ in range(2)] == [2, 3]
    owner = broker.transactions.ids.owners["mover"]
    owner.value = attrs.evolve(state_of(broker), producer_epoch=LAST_CLIENT_EPOCH - 1)
    last = await TransactionalProducer.start(broker)
    assert (last.producer_id, last.producer_epoch) == (first.producer_id, LAST_CLIENT_EPOCH)
    await last.produce(PARTITION, "old")
    new = await TransactionalProducer.start(broker)
    assert new.producer_epoch == 0
    assert new.producer_id != first.producer_id
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        await last.commit()
    await new.produce(PARTITION, "new")
    await new.commit()
    assert await committed_values(broker, PARTITION) == ["new"]


async def test_who_comes_while_a_transaction_ends_is_told_to_try_again(broker: Broker, fs: GateFileSystem) -> None:
    producer = await TransactionalProducer.start(broker)
    await producer.produce(PARTITION, "a")
    async with held(fs.hold("write", ".log"), producer.commit):
        for call in (
            producer.commit(),
            producer.abort(),
            broker.producers.init("mover", TIMEOUT_MS),
            producer.produce(OTHER, "b"),
        ):
            with refused(ErrorCode.CONCURRENT_TRANSACTIONS) as error:
                await call
            assert error.value.retriable
    await producer.commit()
    assert await committed_values(broker, PARTITION) == ["a"]


async def test_an_end_whose_caller_went_away_is_carried_out(broker: Broker, fs: GateFileSystem) -> None:
    producer = await TransactionalProducer.start(broker)
    await producer.produce(PARTITION, "a")
    await producer.produce(OTHER, "b")
    async with held(fs.hold("write", ".log"), producer.commit) as nursery:
        nursery.cancel_scope.cancel()
    assert state_of(broker).state is transactions.TransactionState.COMPLETE_COMMIT
    assert [await committed_values(broker, each) for each in (PARTITION, OTHER)] == [["a"], ["b"]]


async def test_a_transaction_index_that_is_damaged_while_it_is_served_is_an_answer(fast_path: Path) -> None:
    committed = ReaderView(Isolation.READ_COMMITTED)
    async with two_partitions(fast_path) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.produce(PARTITION, "a")
        await producer.abort()
        path = fast_path / "topic-0" / f"{0:020d}.txnindex"
        path.write_bytes(b"\x01" + path.read_bytes()[1:])
        (answer,) = await broker.reader.fetch([FetchPartition(PARTITION, 0, LARGE)], max_bytes=LARGE, view=committed)
        assert answer.error is not None
        assert answer.error.code is ErrorCode.KAFKA_STORAGE_ERROR
        for said in (str(path), "entry 0 has version 256", "restart the server"):
            assert said in answer.error.message
        await producer.produce(PARTITION, "b")
        await producer.commit()
    async with two_partitions(fast_path) as broker:
        assert await committed_values(broker, PARTITION) == ["b"]


async def test_a_transaction_is_aborted_after_its_timeout(broker: Broker, mock_clock: MockClock) -> None:
    producer = await TransactionalProducer.start(broker, timeout_ms=5000)
    quick = await TransactionalProducer.start(broker, "quick", timeout_ms=50_000)
    await producer.produce(PARTITION, "slow")
    await quick.produce(OTHER, "quick")
    mock_clock.jump(4.9)
    await broker.transactions.finish_overdue()
    assert state_of(broker).state is transactions.TransactionState.ONGOING
    mock_clock.jump(1.1)
    await until(lambda: is_idle(broker))
    assert state_of(broker).state is transactions.TransactionState.COMPLETE_ABORT
    assert is_stable(broker, PARTITION)
    with refused(ErrorCode.PRODUCER_FENCED):
        await producer.commit()
    await quick.commit()
    assert await committed_values(broker, PARTITION) == []
    assert await committed_values(broker, OTHER) == ["quick"]
    again = await TransactionalProducer.start(broker)
    await again.produce(PARTITION, "again")
    await again.commit()
    assert await committed_values(broker, PARTITION) == ["again"]


async def test_a_wall_clock_that_is_set_does_not_end_a_transaction(fast_path: Path, clock: Clock) -> None:
    async with two_partitions(fast_path, clock=clock) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.produce(PARTITION, "a")
        clock.advance(365 * DAY_MS)
        await broker.transactions.finish_overdue()
        clock.advance(-366 * DAY_MS)
        await broker.transactions.finish_overdue()
        await producer.commit()
        assert await committed_values(broker, PARTITION) == ["a"]


async def test_a_restart_leaves_a_timeout_and_ten_seconds_at_least(
    fast_path: Path, clock: Clock, mock_clock: MockClock
) -> None:
    async with two_partitions(fast_path, clock=clock) as broker:
        for name in ("a", "b", "c"):
            producer = await TransactionalProducer.start(broker, name, timeout_ms=40_000)
            await producer.produce(PARTITION, name)
            clock.advance(13_000)
    clock.advance(-5000)
    async with two_partitions(fast_path, clock=clock) as broker:
        left = {name: owner.deadline - trio.current_time() for name, owner in broker.transactions.ids.owners.items()}
        assert left == pytest.approx({"a": 10, "b": 19, "c": 32})
        mock_clock.jump(33)
        for name in left:
            await until(partial(is_idle, broker, name))
            assert state_of(broker, name).state is transactions.TransactionState.COMPLETE_ABORT
    async with two_partitions(fast_path, clock=clock) as broker:
        producer = await TransactionalProducer.start(broker, "a", timeout_ms=9_000)
        await producer.produce(PARTITION, "later")
    for days in (-1, 2):
        clock.advance(days * DAY_MS)
        async with two_partitions(fast_path, clock=clock) as broker:
            assert broker.transactions.ids.owners["a"].deadline - trio.current_time() == pytest.approx(9)


async def test_a_producer_commits_after_an_outage_that_was_longer_than_its_timeout(fast_path: Path, clock: Clock) -> None:
    async with two_partitions(fast_path, clock=clock) as broker:
        producer = await TransactionalProducer.start(broker, timeout_ms=60_000)
        await producer.produce(PARTITION, "a")
    clock.advance(DAY_MS)
    async with two_partitions(fast_path, clock=clock) as broker:
        await broker.transactions.finish_overdue()
        producer.broker = broker
        await producer.commit()
        assert await committed_values(broker, PARTITION) == ["a"]


async def test_an_idle_id_expires_and_one_in_use_does_not(fast_path: Path, clock: Clock) -> None:
    async with two_partitions(fast_path, clock=clock) as broker:
        idle = await TransactionalProducer.start(broker, "idle")
        used = await TransactionalProducer.start(broker, "used")
        await used.produce(PARTITION, "a")
        clock.advance(7 * DAY_MS - 1)
        assert await broker.transactions.expire_ids() == 0
        clock.advance(1)
        assert await broker.transactions.expire_ids() == 1
        with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            await idle.produce(PARTITION, "b")
        await used.commit()
        assert (await TransactionalProducer.start(broker, "idle")).producer_id != idle.producer_id
    async with two_partitions(fast_path, clock=clock) as broker:
        assert (await TransactionalProducer.start(broker, "idle")).producer_epoch == 1


async def test_a_partition_that_is_gone_or_knows_a_later_epoch_does_not_hold_up_an_end(broker: Broker) -> None:
    """A power cut under `os` took the later epochs from the coordinator's log and not from the partition's (simulation, seed
    2009): the id could neither end its transaction nor begin another."""
    await broker.topics.create("gone")
    producer = await TransactionalProducer.start(broker)
    for partition in (PARTITION, OTHER, TopicPartition("gone", 0)):
        await producer.produce(partition, "a")
    await broker.topics.delete("gone")
    later = producer.producer_epoch + 3
    await broker.transactions.write_marker(PARTITION, producer.producer_id, later, commit=False, coordinator_epoch=0)
    await producer.commit()
    assert [await committed_values(broker, each) for each in (PARTITION, OTHER)] == [[], ["a"]]
    assert is_idle(broker)
    await TransactionalProducer.start(broker)


async def test_a_decided_outcome_is_written_once_it_can_be(broker: Broker, fs: GateFileSystem, mock_clock: MockClock) -> None:
    producer = await TransactionalProducer.start(broker)
    await producer.produce(PARTITION, "a")
    await producer.produce(OTHER, "b")
    fs.fail("write", f"{TOPIC}-1/00000000000000000000.log", times=None)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        await producer.commit()
    assert state_of(broker).state is transactions.TransactionState.PREPARE_COMMIT
    assert await committed_values(broker, PARTITION) == ["a"]
    with refused(ErrorCode.INVALID_TXN_STATE):
        await producer.abort()
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await producer.produce(PARTITION, "c")
    fs.heal()
    mock_clock.jump(11)
    await until(lambda: is_idle(broker))
    assert state_of(broker).state is transactions.TransactionState.COMPLETE_COMMIT
    assert await committed_values(broker, OTHER) == ["b"]
    assert await markers(broker, PARTITION) == 1
    await producer.commit()


async def test_a_step_that_cannot_be_written_is_not_taken(broker: Broker, fs: GateFileSystem) -> None:
    states_log = f"{transactions.TRANSACTIONS_TOPIC}-0/00000000000000000000.log"
    await TransactionalProducer.start(broker, "first")
    fs.fail("write", states_log)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        await TransactionalProducer.start(broker)
    assert list(broker.transactions.ids.owners) == ["first"]
    producer = await TransactionalProducer.start(broker)
    assert producer.producer_epoch == 0
    fs.fail("write", states_log)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        await producer.produce(PARTITION, "a")
    assert broker.reader.snapshot(PARTITION).log_end_offset == 0
    await producer.produce(PARTITION, "b")
    fs.fail("write", states_log)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        await producer.commit()
    assert state_of(broker).state is transactions.TransactionState.ONGOING
    assert await markers(broker, PARTITION) == 0
    await producer.commit()
    assert await committed_values(broker, PARTITION) == ["b"]


async def test_a_state_that_cannot_be_read_takes_only_its_partition_out_of_service(fast_path: Path) -> None:
    async with two_partitions(fast_path) as broker:
        await broker._manager.changes.create(transactions.TRANSACTIONS_TOPIC, 1, INTERNAL_TOPIC_CONFIG, internal=True)
        batch = build_batch([(START_MS, transactions.encode_transaction_key("mover"), b"\x00\x63", ())])
        actor = actor_of(broker, STATES)
        prepared = prepare_append(batch, STATES, actor.config, now_ms=START_MS, origin=AppendOrigin.COORDINATOR)
        await store(actor, prepared, lambda _: None)
    async with two_partitions(fast_path) as broker:
        with pytest.raises(RequestError, match=r"version 99.*triolog verify"):
            await TransactionalProducer.start(broker)
        await broker.writer.append(PARTITION, [(START_MS, None, b"v", ())])
        assert (await broker.producers.init(None, 0))[1] == 0


async def end_v2(broker: Broker, producer: TransactionalProducer, *, commit: bool) -> None:
    """End as a client of transaction version 2 does: it goes on with the id and epoch that are answered."""
    identity = await broker.transactions.end(*producer.identity, commit=commit, client_version=2)
    producer.producer_id, producer.producer_epoch = identity
    producer.sequences.clear()


async def test_ending_version_2_again_answers_the_same_epoch_also_after_a_restart(fast_path: Path) -> None:
    async with two_partitions(fast_path) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.produce(PARTITION, "a")
        first = await broker.transactions.end(*producer.identity, commit=True, client_version=2)
        assert await broker.transactions.end(*producer.identity, commit=True, client_version=2) == first
    async with two_partitions(fast_path) as broker:
        assert await broker.transactions.end(*producer.identity, commit=True, client_version=2) == first
        with refused(ErrorCode.INVALID_TXN_STATE):
            await broker.transactions.end(*producer.identity, commit=False, client_version=2)
        assert await markers(broker, PARTITION) == 1


async def test_each_transaction_of_version_2_has_an_epoch_of_its_own(broker: Broker) -> None:
    """Also the abort of nothing, which writes no marker."""
    producer = await TransactionalProducer.start(broker)
    await end_v2(broker, producer, commit=False)
    assert await markers(broker, PARTITION) == 0
    for number, commit in enumerate([True, False, True], 1):
        assert producer.producer_epoch == number
        await producer.produce(PARTITION, f"v{number}")
        late = attrs.evolve(producer)
        await end_v2(broker, producer, commit=commit)
        await late_batch_is_refused(late)
    assert await committed_values(broker, PARTITION) == ["v1", "v3"]


async def test_behind_the_last_epoch_version_2_goes_on_with_another_producer_id(broker: Broker) -> None:
    producer = await TransactionalProducer.start(broker)
    owner = broker.transactions.ids.owners["mover"]
    owner.value = attrs.evolve(state_of(broker), producer_epoch=LAST_CLIENT_EPOCH)
    producer.producer_epoch = LAST_CLIENT_EPOCH
    before = attrs.evolve(producer)
    await producer.produce(PARTITION, "a")
    await end_v2(broker, producer, commit=True)
    assert producer.producer_id != before.producer_id
    assert producer.producer_epoch == 0
    again = await broker.transactions.end(*before.identity, commit=True, client_version=2)
    assert again == (producer.producer_id, 0)
    await producer.produce(PARTITION, "b")
    await end_v2(broker, producer, commit=True)
    assert await committed_values(broker, PARTITION) == ["a", "b"]


async def test_partitions_that_have_not_joined_are_refused(broker: Broker) -> None:
    producer = await TransactionalProducer.start(broker)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await broker.transactions.add_partitions(*producer.identity, [PARTITION, TopicPartition(TOPIC, 2)])
    assert state_of(broker).state is transactions.TransactionState.EMPTY
    with refused(ErrorCode.INVALID_TXN_STATE):
        broker.transactions.check_joined(*producer.identity, [PARTITION])
    await broker.transactions.add_partitions(*producer.identity, [PARTITION])
    end = broker.reader.snapshot(STATES).log_end_offset
    with trio.testing.assert_no_checkpoints():
        await broker.transactions.add_partitions(*producer.identity, [PARTITION])
    assert broker.reader.snapshot(STATES).log_end_offset == end, "it has joined already"
    broker.transactions.check_joined(*producer.identity, [PARTITION])
    with refused(ErrorCode.INVALID_TXN_STATE):
        broker.transactions.check_joined(*producer.identity, [PARTITION, OTHER])


OFFSETS: Final = TopicPartition(OFFSETS_TOPIC, 0)
SMALL_FILES: Final = {"segment.index.bytes": "1200"}


class Seen(NamedTuple):
    """What readers of committed records, and the group, see."""

    first: list[str]
    second: list[str]
    offset: int


BEFORE: Final = Seen(["a0"], ["b0"], 1)
AFTER: Final = Seen(["a0", "a1"], ["b0", "b1"], 2)


async def look(broker: Broker) -> Seen:
    return Seen(
        await committed_values(broker, PARTITION),
        await committed_values(broker, OTHER),
        await committed_offset(broker, GROUP, PARTITION),
    )


async def one_transaction(producer: TransactionalProducer, number: int, *, commit: bool = True) -> None:
    await producer.produce(PARTITION, f"a{number}")
    await producer.produce(OTHER, f"b{number}")
    await producer.commit_offset(GROUP, PARTITION, number + 1)
    await (producer.commit() if commit else producer.abort())


async def record_steps(path: Path, fs: CrashFileSystem, *, commit: bool) -> list[CrashFileSystem]:
    """A committed transaction, then one whose steps are kept."""
    async with running_broker(path, fs=fs, durability="fsync", topic=SMALL_FILES) as broker:
        await broker.topics.create(TOPIC, 2)
        producer = await TransactionalProducer.start(broker)
        await one_transaction(producer, 0)
        assert await look(broker) == BEFORE
        moments = fs.moments()
        await one_transaction(producer, 1, commit=commit)
        steps = [*moments, fs.copy()]
        assert await look(broker) == (AFTER if commit else BEFORE)
    return steps


@pytest.mark.merge  # cut off before each operation on the disk
@pytest.mark.parametrize("kind", ["killed", "cut"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_a_transaction_cut_off_anywhere_is_whole_or_absent(fast_path: Path, commit: bool, kind: str) -> None:
    fs = CrashFileSystem()
    [path] = made_directories(fs, fast_path, 1)
    outcomes = []
    steps = await record_steps(path, fs, commit=commit)
    for step in steps if kind == "killed" else [step.crash(None) for step in steps]:
        async with running_broker(path, fs=step, durability="fsync", topic=SMALL_FILES) as broker:
            seen = await look(broker)
            assert seen in (BEFORE, AFTER)
            outcomes.append(seen == AFTER)
            decided = [is_stable(broker, each) for each in (PARTITION, OTHER, OFFSETS)]
            assert all(decided) or seen == BEFORE
            again = await TransactionalProducer.start(broker)
            assert all(is_stable(broker, each) for each in (PARTITION, OTHER, OFFSETS))
            assert await look(broker) == seen
            await one_transaction(again, 9)
            assert await look(broker) == Seen([*seen.first, "a9"], [*seen.second, "b9"], 10)
        async with running_broker(path, fs=step, durability="fsync", topic=SMALL_FILES) as broker:
            assert await look(broker) == Seen([*seen.first, "a9"], [*seen.second, "b9"], 10)
    assert len(outcomes) >= 16
    assert outcomes == sorted(outcomes), "an outcome that was decided changed"
    assert outcomes[-1] is commit
