"""Committed offsets: kept, read back after any stop, expired, deleted, and part of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from triolog.protocol.coordinator import offsets
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue, MemberMetadata
from triolog.protocol.coordinator.offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from triolog.protocol.errors import ErrorCode, InvalidRecordError, RequestError
from triolog.protocol.records.batch import end_txn_marker, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.partitioners import coordinator_partition
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, Commit, Heartbeat, Join, Sync
from triolog.server.groups.values import NO_MEMBER
from triolog.server.logs.internal_topic import INTERNAL_TOPIC_CONFIG, store
from triolog.server.offsets.group_offsets import GroupOffsets
from triolog.server.storage.log.prepare import prepare_append
from triolog.server.storage.producers.producer_cursor import AppendOrigin

from tests.support.brokers import PARTITION, TOPIC, actor_of, listings, one_partition, records_from, running_broker, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TransactionalProducer, committed_offset

OFFSETS = TopicPartition(offsets.OFFSETS_TOPIC, 0)
OTHER = TopicPartition(TOPIC, 1)
DAY_MS = 86_400_000
JOIN = Join(group_id="group", protocol_type="consumer", protocols=(("range", b""),), session_timeout_ms=10_000)


async def commit(broker: Broker, offset: int, *, group: str = "group", partition: TopicPartition = PARTITION) -> None:
    assert await broker.offsets.commit(group, [(partition, offset, None)]) == [None]


async def put_records(broker: Broker, *records: tuple[bytes, bytes | None]) -> None:
    """Records in `__consumer_offsets` as Kafka may have left them."""
    await broker._manager.changes.create(offsets.OFFSETS_TOPIC, 1, INTERNAL_TOPIC_CONFIG, internal=True)
    actor = actor_of(broker, OFFSETS)
    batch = build_batch([(START_MS, key, value, ()) for key, value in records])
    prepared = prepare_append(batch, OFFSETS, actor.config, now_ms=START_MS, origin=AppendOrigin.COORDINATOR)
    await store(actor, prepared, lambda _: None)


async def group_names(broker: Broker) -> list[str]:
    return [each.group_id for each in await listings(broker)]


def code_of(answers: Sequence[RequestError | None]) -> list[ErrorCode | None]:
    return [None if error is None else error.code for error in answers]


async def test_nothing_is_made_before_the_first_commit_that_is_waited_for(broker: Broker) -> None:
    assert await broker.offsets.fetch("group", [PARTITION]) == [(PARTITION, -1, "")]
    assert await broker.offsets.fetch("group", None) == []
    assert code_of(await broker.offsets.commit("group", [(OTHER, 1, None)])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not broker.offsets.try_commit("group", [Commit(PARTITION, 1)], NO_MEMBER, lambda _: None)
    assert await group_names(broker) == []
    assert list(broker.topics.names()) == [TOPIC]


async def test_a_committed_offset_is_read_back_and_in_the_log_as_kafka_writes_it(broker: Broker) -> None:
    assert await broker.offsets.commit("group", [(PARTITION, 5, "note")]) == [None]
    assert await broker.offsets.fetch("group", [PARTITION, OTHER]) == [(PARTITION, 5, "note"), (OTHER, -1, "")]
    [record] = await records_from(broker, OFFSETS)
    assert offsets.decode_offsets_key(record.key or b"") == offsets.OffsetCommitKey("group", PARTITION)
    expected = offsets.OffsetCommitValue(5, "note", START_MS, topic_id=broker.topics.id_of(TOPIC))
    assert offsets.decode_offset_commit_value(record.value or b"") == expected
    description = broker.topics.describe(offsets.OFFSETS_TOPIC)
    assert (description.config, len(description.partitions)) == (INTERNAL_TOPIC_CONFIG, 1)
    await commit(broker, 3)
    assert await broker.offsets.fetch("group", None) == [(PARTITION, 3, "")]
    assert await broker.offsets.fetch("other", [PARTITION]) == [(PARTITION, -1, "")]
    assert await group_names(broker) == ["group"]


async def test_each_offset_has_its_own_answer(fast_path: Path) -> None:
    unknown = TopicPartition("unknown", 0)
    async with one_partition(fast_path, offset_metadata_max_bytes=10) as broker:
        answers = await broker.offsets.commit(
            "group", [(unknown, 1, None), (PARTITION, 2, "é" * 6), (PARTITION, 7, "é" * 5), (OTHER, 1, None)]
        )
        assert code_of(answers) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            None,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await broker.offsets.fetch("group", None) == [(PARTITION, 7, "é" * 5)]


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
async def test_negative_offset_is_stored_as_kafka_does_and_counts_as_none(fast_path: Path, offset: int) -> None:
    """Some clients commit -2 and -1 for the earliest and the latest record, and read that back."""
    async with one_partition(fast_path) as broker:
        await commit(broker, 5)
        await commit(broker, offset)
        producer = await TransactionalProducer.start(broker)
        await producer.commit_offset("other", PARTITION, offset)
        await producer.commit()
    async with one_partition(fast_path) as broker:
        for group in ("group", "other"):
            [stored] = broker.offsets.committed(group, [PARTITION])
            assert stored.value is not None
            assert stored.value.offset == offset
            assert await broker.offsets.fetch(group, [PARTITION]) == [(PARTITION, -1, "")]
            assert await broker.offsets.fetch(group, None) == []
            held = broker._manager.holds.committed
            assert held is not None
            assert held(group, PARTITION) is None, "nothing that retention has to keep"
        await commit(broker, 7)
        assert await broker.offsets.fetch("group", None) == [(PARTITION, 7, "")]


Told = list[RequestError | None] | RequestError


async def test_commits_of_one_turn_share_a_write_and_are_answered_in_order(broker: Broker, fs: GateFileSystem) -> None:
    fs.lets_write_at_once = True
    await commit(broker, 1)
    told: list[tuple[str, Told]] = []
    groups = actor_of(broker, OFFSETS).statistics().groups
    with broker.disk.gathering:
        for group in "cab":
            wanted = [Commit(PARTITION, 5)]
            assert broker.offsets.try_commit(
                group, wanted, NO_MEMBER, lambda answers, group=group: told.append((group, answers))
            )
        assert told == []
    assert told == [("c", [None]), ("a", [None]), ("b", [None])]
    assert actor_of(broker, OFFSETS).statistics().groups == groups + 1
    for group in "abc":
        assert await broker.offsets.fetch(group, [PARTITION]) == [(PARTITION, 5, "")]


async def test_a_commit_on_the_spot_is_refused_as_one_that_waits(fast_path: Path) -> None:
    async with one_partition(fast_path, offset_metadata_max_bytes=10) as broker:
        await commit(broker, 1)
        wanted = [Commit(OTHER, 1), Commit(PARTITION, 2, "e" * 11), Commit(OTHER, 2), Commit(PARTITION, 3)]
        told: list[Told] = []
        with broker.disk.gathering:
            assert broker.offsets.try_commit("group", wanted, NO_MEMBER, told.append)
            assert broker.offsets.try_commit("group", wanted[:3], NO_MEMBER, told.append)
        [later, at_once] = reversed(told)
        assert isinstance(later, list)
        assert isinstance(at_once, list)
        assert code_of(later) == code_of(await broker.offsets.commit("group", wanted))
        assert code_of(at_once) == code_of(later)[:3]
        with pytest.raises(RequestError, match=r"^INVALID_GROUP_ID"):
            broker.offsets.try_commit("", wanted, NO_MEMBER, told.append)
        assert len(told) == 2


async def test_a_group_that_commits_on_the_spot_is_not_deleted_before_it_is_answered(broker: Broker) -> None:
    await commit(broker, 1)
    told: list[Told] = []
    assert broker.offsets.try_commit("group", [Commit(PARTITION, 2)], NO_MEMBER, told.append)
    with pytest.raises(RequestError, match=r"^NON_EMPTY_GROUP"):
        await broker.groups.delete("group")
    await until(lambda: bool(told))
    await broker.groups.delete("group")


@pytest.mark.parametrize("group", ["", "g" * 40_000])
async def test_a_name_that_cannot_be_a_groups_is_refused(broker: Broker, group: str) -> None:
    for call in (
        broker.offsets.commit(group, [(PARTITION, 1, None)]),
        broker.offsets.fetch(group),
        broker.groups.delete(group),
    ):
        with pytest.raises(RequestError, match=r"^INVALID_GROUP_ID"):
            await call
    assert (await broker.groups.join(attrs.evolve(JOIN, group_id=group))).error is ErrorCode.INVALID_GROUP_ID
    assert (await broker.groups.leave(group, [])).error is ErrorCode.INVALID_GROUP_ID


async def test_offsets_that_do_not_fit_one_batch_are_refused_together(fast_path: Path) -> None:
    async with one_partition(fast_path, topic={"max.message.bytes": "300"}) as broker:
        with pytest.raises(RequestError, match=r"^INVALID_COMMIT_OFFSET_SIZE.*fewer at a time"):
            await broker.offsets.commit("group", [(PARTITION, number, "note " * 10) for number in range(5)])
        assert await committed_offset(broker, "group", PARTITION) == -1


async def test_a_commit_counts_once_it_is_on_the_device(fast_path: Path, fs: GateFileSystem) -> None:
    """Also one whose caller has gone away."""
    async with one_partition(fast_path, fs=fs, durability="fsync") as broker:
        await commit(broker, 0)
        fs.fail("write", ".log")
        with pytest.raises(RequestError, match=r"^KAFKA_STORAGE_ERROR"):
            await commit(broker, 2)
        assert await committed_offset(broker, "group", PARTITION) == 0
        await broker.groups.delete("group")
        await commit(broker, 1)
        async with held(fs.hold("sync", ".log"), commit, broker, 2) as nursery:
            assert await committed_offset(broker, "group", PARTITION) == 1
            nursery.cancel_scope.cancel()
        assert await committed_offset(broker, "group", PARTITION) == 2


@pytest.mark.parametrize("partitions", [1, 50])
async def test_offsets_survive_a_clean_stop(fast_path: Path, partitions: int) -> None:
    groups = [f"group-{number}" for number in range(20)]
    async with one_partition(fast_path, offsets_topic_num_partitions=partitions) as broker:
        for number, group in enumerate(groups):
            await commit(broker, number, group=group)
            place = TopicPartition(offsets.OFFSETS_TOPIC, coordinator_partition(group, partitions))
            assert (await records_from(broker, place))[-1].key == offsets.OffsetCommitKey(group, PARTITION).encode()
    async with one_partition(fast_path) as broker:
        assert await group_names(broker) == sorted(groups)
        assert [await committed_offset(broker, group, PARTITION) for group in groups] == list(range(20))
        await commit(broker, 99, group="group-3")
    async with one_partition(fast_path, offsets_topic_num_partitions=7) as broker:
        assert await committed_offset(broker, "group-3", PARTITION) == 99


async def test_old_and_foreign_records_of_kafka_are_understood(fast_path: Path, clock: Clock) -> None:
    """Value version 1 with an expiry of its own, a group without members, and a kind of record that is not known here."""
    old = bytes.fromhex("0001" + "0000000000000007" + "0000" + f"{START_MS:016x}" + f"{START_MS + 10:016x}")
    async with one_partition(fast_path) as broker:
        await put_records(
            broker,
            (offsets.OffsetCommitKey("old", PARTITION).encode(), old),
            (
                offsets.GroupMetadataKey("members").encode(),
                bytes.fromhex("0000" + "0008" + b"consumer".hex() + "00000007ffffffff00000000"),
            ),
            (b"\x00\x18\x00\x05group", b"of a kind of groups to come"),
        )
    async with one_partition(fast_path, clock=clock) as broker:
        assert await group_names(broker) == ["members", "old"]
        assert await committed_offset(broker, "old", PARTITION) == 7
        await broker.groups.delete("members")
        clock.advance(10)
        assert await broker.groups.expire() == 1
        assert await group_names(broker) == []


async def test_a_record_that_cannot_be_read_takes_only_its_partition_out_of_service(fast_path: Path) -> None:
    """The offset below it would come back otherwise."""
    async with one_partition(fast_path) as broker:
        await put_records(broker, (offsets.OffsetCommitKey("group", PARTITION).encode(), b"\x00\x63"))
    async with one_partition(fast_path) as broker:
        for call in (broker.offsets.fetch("group", [PARTITION]), broker.offsets.commit("group", [(PARTITION, 1, None)])):
            with pytest.raises(RequestError, match=r"^KAFKA_STORAGE_ERROR.*version 99.*triolog verify"):
                await call
        assert await group_names(broker) == []
        sync, beat = (kind(group_id="group", generation=1, member_id="") for kind in (Sync, Heartbeat))
        answers = await broker.groups.join(JOIN), await broker.groups.sync(sync), await broker.groups.leave("group", [])
        assert [each.error for each in answers] == [ErrorCode.NOT_COORDINATOR] * 3
        assert broker.groups.heartbeat(beat) is ErrorCode.NOT_COORDINATOR
        with pytest.raises(RequestError, match="version 99"):
            broker.groups.describe("group")
        await broker.writer.append(PARTITION, [(START_MS, None, b"v", ())])


async def test_a_committing_group_is_not_deleted_nor_expired(fast_path: Path, fs: GateFileSystem, clock: Clock) -> None:
    async with one_partition(fast_path, fs=fs, clock=clock) as broker:
        await commit(broker, 1)
        clock.advance(8 * DAY_MS)
        async with held(fs.hold("write", ".log"), commit, broker, 2):
            with pytest.raises(RequestError, match=r"^NON_EMPTY_GROUP"):
                await broker.groups.delete("group")
            assert await broker.groups.expire() == 0
        assert await committed_offset(broker, "group", PARTITION) == 2


async def test_an_offset_expires_after_the_retention_of_its_last_commit(fast_path: Path, clock: Clock) -> None:
    async with running_broker(fast_path, clock=clock) as broker:
        await broker.topics.create(TOPIC, 2)
        await commit(broker, 1)
        clock.advance(DAY_MS)
        await commit(broker, 2, partition=OTHER)
        clock.advance(6 * DAY_MS - 1)
        assert await broker.groups.expire() == 0
        clock.advance(1)
        assert await broker.groups.expire() == 1
        assert await broker.offsets.fetch("group", None) == [(OTHER, 2, "")]
    clock.advance(DAY_MS)
    async with running_broker(fast_path, clock=clock) as broker:
        await until(lambda: not broker._coordinators.committed_offsets.topic.names())  # it goes by itself
    async with running_broker(fast_path, clock=clock) as broker:
        assert await group_names(broker) == []


async def test_many_offsets_expire_in_several_batches(fast_path: Path, clock: Clock) -> None:
    async with running_broker(fast_path, clock=clock, topic={"segment.index.bytes": "100"}) as broker:
        await broker.topics.create(TOPIC, 30)
        partitions = [TopicPartition(TOPIC, number) for number in range(30)]
        for number in range(10):
            group = "g" * 1000 + str(number)
            assert await broker.offsets.commit(group, [(each, 1, None) for each in partitions]) == [None] * 30
        end = broker.reader.snapshot(OFFSETS).log_end_offset
        clock.advance(8 * DAY_MS)
        assert await broker.groups.expire() == 300
        assert broker.reader.snapshot(OFFSETS).log_end_offset == end + 300
        assert await group_names(broker) == []


async def test_a_topic_of_the_same_name_does_not_inherit_offsets(fast_path: Path) -> None:
    async with one_partition(fast_path) as broker:
        await broker.topics.create("kept")
        await commit(broker, 5)
        await commit(broker, 6, partition=TopicPartition("kept", 0))
        await broker.topics.delete(TOPIC)
        await broker.topics.create(TOPIC)
        assert await broker.offsets.fetch("group", None) == [(TopicPartition("kept", 0), 6, "")]
    async with running_broker(fast_path) as broker:
        assert await committed_offset(broker, "group", PARTITION) == -1


@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_offsets_in_a_transaction_count_when_it_commits_and_never_when_it_aborts(fast_path: Path, outcome: str) -> None:
    async with one_partition(fast_path) as broker:
        await commit(broker, 1)
        producer = await TransactionalProducer.start(broker)
        await broker.offsets.join_transaction(*producer.identity, "group")
        joined = broker.transactions.ids.owners["mover"].value
        assert joined is not None
        assert joined.partitions == {OFFSETS}
        await producer.commit_offset("group", PARTITION, 2)
        assert await committed_offset(broker, "group", PARTITION) == 1
        with pytest.raises(RequestError, match=r"^UNSTABLE_OFFSET_COMMIT.*topic-0"):
            await broker.offsets.fetch("group", None, require_stable=True)
        assert await broker.offsets.fetch("other", [PARTITION], require_stable=True) == [(PARTITION, -1, "")]
        with pytest.raises(RequestError, match="still open"):
            await broker.groups.delete("group")
        await (producer.commit() if outcome == "commit" else producer.abort())
        expected = 2 if outcome == "commit" else 1
        assert await broker.offsets.fetch("group", [PARTITION], require_stable=True) == [(PARTITION, expected, "")]
    async with one_partition(fast_path) as broker:
        assert await committed_offset(broker, "group", PARTITION) == expected


async def test_a_commit_outside_that_came_later_wins_over_the_transactions(fast_path: Path) -> None:
    """[OffsetMetadataManager] The later record of the log counts, whenever its transaction ends."""
    async with one_partition(fast_path) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.commit_offset("group", PARTITION, 2)
        await commit(broker, 3)
        await producer.commit()
        assert await committed_offset(broker, "group", PARTITION) == 3
    async with one_partition(fast_path) as broker:
        assert await committed_offset(broker, "group", PARTITION) == 3


async def test_a_topic_goes_though_offsets_stay(fast_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(fast_path, fs=fs) as broker:
        await commit(broker, 5)
        fs.fail("write", f"{offsets.OFFSETS_TOPIC}-0/00000000000000000000.log")
        await broker.topics.delete(TOPIC)
        assert TOPIC not in broker.topics.names()
    assert "offsets for the deleted topic 'topic' stay in __consumer_offsets-0" in caplog.text


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_topic_of_the_same_name_does_not_inherit_offsets_of_an_open_transaction(
    fast_path: Path, restarts: bool
) -> None:
    kept = TopicPartition("kept", 0)
    async with one_partition(fast_path) as broker:
        await broker.topics.create("kept")
        producer = await TransactionalProducer.start(broker)
        await producer.commit_offset("group", PARTITION, 5)
        await producer.commit_offset("group", kept, 6)
        await broker.topics.delete(TOPIC)
        await broker.topics.create(TOPIC)
        if not restarts:
            await producer.commit()
            assert await broker.offsets.fetch("group", None) == [(kept, 6, "")]
    async with one_partition(fast_path) as broker:
        producer.broker = broker
        if restarts:
            await producer.commit()
        assert await broker.offsets.fetch("group", None) == [(kept, 6, "")]


PLACE = TopicPartition("topic", 0)
KEY = OffsetCommitKey("group", PLACE)
PRODUCER = 9
MEMBERS = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=START_MS,
    members=[
        MemberMetadata(member_id="m", client_id="c", client_host="/h", session_timeout=1, subscription=b"", assignment=b"")
    ],
)


def gone_at(timestamp: int) -> GroupMetadataValue:
    """A group since its last member was gone."""
    return GroupMetadataValue(protocol_type="consumer", generation=4, current_state_timestamp=timestamp, members=[])


def anybody(group: str) -> bool:
    """Whatever the group: nobody is about to join it."""
    return True


def stored_commit(offset: int, *, at: int = START_MS) -> tuple[bytes, bytes]:
    return KEY.encode(), OffsetCommitValue(offset, "", at).encode()


def replayed(*batches: bytes) -> GroupOffsets:
    """The batches, one after the other in a log."""
    offsets, base_offset = GroupOffsets(), 0
    for data in batches:
        stamped = base_offset.to_bytes(8, "big") + data[8:]
        for header, batch in iter_batches(stamped):
            offsets.replay(header, batch)
            base_offset = header.next_offset
    return offsets


def plain(*records: tuple[bytes, bytes | None]) -> bytes:
    return build_batch([(START_MS, key, value, ()) for key, value in records])


def in_transaction(*records: tuple[bytes, bytes | None]) -> bytes:
    return build_batch(
        [(START_MS, key, value, ()) for key, value in records],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(*, commits: bool) -> bytes:
    return end_txn_marker(producer_id=PRODUCER, producer_epoch=0, commit=commits, timestamp=START_MS, coordinator_epoch=0)


@pytest.mark.parametrize(
    ("batches", "expected", "pending"),
    [
        ([plain(stored_commit(1)), plain(stored_commit(2))], 2, False),
        ([plain(stored_commit(1), stored_commit(2))], 2, False),
        ([plain(stored_commit(1)), plain((KEY.encode(), None))], None, False),
        ([plain(stored_commit(1)), in_transaction(stored_commit(2))], 1, True),
        ([plain(stored_commit(1)), in_transaction(stored_commit(2)), marker(commits=True)], 2, False),
        ([plain(stored_commit(1)), in_transaction(stored_commit(2)), marker(commits=False)], 1, False),
        ([in_transaction(stored_commit(2)), plain(stored_commit(1)), marker(commits=True)], 1, False),
        ([in_transaction(stored_commit(2)), marker(commits=True), marker(commits=False)], 2, False),
        ([in_transaction(stored_commit(2)), marker(commits=False), marker(commits=True)], None, False),
        ([in_transaction(stored_commit(2)), in_transaction(stored_commit(3)), marker(commits=True)], 3, False),
        ([marker(commits=True)], None, False),
    ],
)
def test_the_last_record_that_counts_is_the_groups_offset(batches: list[bytes], expected: int | None, pending: bool) -> None:
    offsets = replayed(*batches)
    found = offsets.offsets("group").get(PLACE)
    assert (found and found.value.offset) == expected
    assert offsets.pending("group") == ({PLACE} if pending else set())
    assert offsets.groups() == (set() if expected is None and not pending else {"group"})


def test_a_group_with_members_is_known_until_it_is_taken_away() -> None:
    key = GroupMetadataKey("members")
    offsets = replayed(plain((key.encode(), MEMBERS.encode())))
    assert (offsets.groups(), offsets.keys("members")) == ({"members"}, [key])
    assert offsets.take_restorable() == {"members": MEMBERS}
    assert offsets.take_restorable() == {}
    gone = replayed(plain((key.encode(), MEMBERS.encode()), (key.encode(), None)))
    assert (gone.groups(), gone.take_restorable()) == (set(), {})


@pytest.mark.parametrize(
    "record",
    [
        (KEY.encode(), b"\0\x63"),
        (KEY.encode(), b""),
        (b"", b""),
        (KEY.encode()[:-1], b""),
        (GroupMetadataKey("g").encode(), b"x"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(InvalidRecordError):
        replayed(plain(record))


@pytest.mark.parametrize(("gone_ms", "expected_ms"), [(None, 100), (50, 150), (-1_000, 100)])
def test_an_offset_expires_at_the_retention_of_its_commit_or_of_the_last_member(gone_ms: int | None, expected_ms: int) -> None:
    """[KIP-211] Of the later one: Kafka would let an offset go that an administrator has just set for an empty group."""
    gone = [] if gone_ms is None else [(GroupMetadataKey("group").encode(), gone_at(START_MS + gone_ms).encode())]
    offsets = replayed(plain(stored_commit(1, at=START_MS), *gone))
    assert list(offsets.expired(START_MS + expected_ms - 1, 100, anybody)) == []
    assert list(offsets.expired(START_MS + expected_ms, 100, anybody)) == [KEY]


def test_a_group_goes_when_it_has_neither_members_nor_offsets() -> None:
    key = GroupMetadataKey("group")
    assert list(replayed(plain((key.encode(), gone_at(START_MS).encode()))).without_offsets(anybody)) == [key]
    assert list(replayed(plain((key.encode(), MEMBERS.encode()))).without_offsets(anybody)) == []
    for batch in (plain(stored_commit(1)), in_transaction(stored_commit(1))):
        offsets = replayed(plain((key.encode(), gone_at(START_MS).encode())), batch)
        assert list(offsets.without_offsets(anybody)) == []
    offsets = replayed(plain((key.encode(), gone_at(START_MS).encode())))
    assert list(offsets.without_offsets(lambda group: group != "group")) == [], "somebody is about to join it"
    offsets.begin_commit("group")
    assert list(offsets.without_offsets(anybody)) == []


def test_an_offset_of_a_busy_group_does_not_expire() -> None:
    offsets = replayed(plain(stored_commit(1)))
    assert (list(offsets.stale(lambda key, _: key == KEY)), list(offsets.stale(lambda key, _: key != KEY))) == ([KEY], [])
    assert list(offsets.expired(START_MS + 1000, 1, lambda group: group != "group")) == [], "somebody is about to join it"
    offsets.begin_commit("group")
    offsets.begin_commit("group")
    offsets.end_commit("group")
    assert list(offsets.expired(START_MS + 1000, 1, anybody)) == []
    offsets.end_commit("group")
    assert list(offsets.expired(START_MS + 1000, 1, anybody)) == [KEY]
    assert not offsets.commits_under_way


@pytest.mark.parametrize(
    "batch", [in_transaction(stored_commit(2)), plain((GroupMetadataKey("group").encode(), MEMBERS.encode()))]
)
def test_an_offset_below_a_transaction_or_of_a_group_with_members_does_not_expire(batch: bytes) -> None:
    assert list(replayed(plain(stored_commit(1)), batch).expired(START_MS + 1000, 1, anybody)) == []
