"""A board without a battery, over a year: it starts in 1970 or where its last start ended, its time service answers late or not
at all, and its power is cut. A model that knows the true time says which records, offsets and ids must be there."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.errors import InvalidTimestampError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, open_broker_core
from triolog.server.logs.log_manager import expire_producers
from triolog.server.logs.undated_records import EARLIEST_MS
from triolog.server.offsets.committed_offsets import Commit
from triolog.server.storage.directory.clock_file import CLOCK_FILE
from triolog.server.storage.directory.topics_file import TOPICS_FILE
from triolog.server.system.clock import HOLD_S, ServerClock

from tests.support import logs
from tests.support.brokers import actor_of, broker_config, records_from
from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem, put
from tests.support.gate_fs import GateFileSystem

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
RETENTION_MS: Final = 7 * DAY_MS
STAMPED: Final = TopicPartition("stamped", 0)
"""By the server."""
CREATED: Final = TopicPartition("created", 0)
"""By programs on the board, which have its clock."""
TOPIC_KEYS: Final = {
    "retention.ms": str(RETENTION_MS),
    "segment.bytes": "100",
    "index.interval.bytes": "0",
    "file.delete.delay.ms": "0",
}


def no_check() -> None:
    """The group has no members."""


@attrs.define
class Fact:
    """Something that was appended or stored."""

    made_ms: int
    """The true time."""
    sure_ms: int | None = None
    """The true time of the first look at a clock that was right for more than HOLD_S since."""


@attrs.define
class Board:
    """A board and its true time. `fs` survives."""

    path: Path
    rng: random.Random
    fs: CrashFileSystem = attrs.field(factory=CrashFileSystem)
    now_ms: int = EARLIEST_MS + 30 * DAY_MS
    booted_ms: int = 0
    wrong_ms: int = 0
    """The wall clock less the true time."""
    last_wall_ms: int = EARLIEST_MS + 30 * DAY_MS
    facts: dict[str, list[Fact]] = attrs.field(factory=dict)
    names: dict[str, int] = attrs.field(factory=dict)
    """Of groups and transactional ids, with the true time of their only use."""
    stamps: dict[TopicPartition, list[int]] = attrs.field(factory=lambda: {STAMPED: [], CREATED: []})

    def wall_ms(self) -> int:
        return self.now_ms + self.wrong_ms

    def elapsed_s(self) -> float:
        return (self.now_ms - self.booted_ms) / 1000

    @asynccontextmanager
    async def boot(self, wall_ms: int, *, cut: bool) -> AsyncIterator[Broker]:
        """A life of the server. `cut`: the power ends it."""
        self.booted_ms, self.wrong_ms = self.now_ms, wall_ms - self.now_ms
        clock = ServerClock(self.wall_ms, self.elapsed_s)
        config = broker_config(
            self.path,
            durability="fsync",
            topic=TOPIC_KEYS,
            offsets_retention_ms=RETENTION_MS,
            transactional_id_expiration_ms=RETENTION_MS,
        )
        async with open_broker_core(config, fs=self.fs, clock=clock) as broker:
            yield broker
            survivor = self.fs.copy()
        if cut:
            self.fs = survivor.crash(self.rng)
        self.last_wall_ms = self.wall_ms()

    def note(self, kind: str) -> None:
        self.facts.setdefault(kind, []).append(Fact(self.now_ms))

    async def use(self, broker: Broker) -> None:
        """Append to both topics, with a producer."""
        for topic_partition in (STAMPED, CREATED):
            records = logs.batch(
                self.wall_ms(),
                producer_id=broker_producer(topic_partition),
                base_sequence=self._sequence(topic_partition),
                producer_epoch=0,
            )
            result = await broker.writer.append(topic_partition, records)
            assert result.base_offset == len(self.stamps[topic_partition])
            self.note(topic_partition.topic)
            is_stamped = topic_partition == STAMPED
            self.stamps[topic_partition].append(result.log_append_time if is_stamped else self.wall_ms())
        assert self.stamps[STAMPED] == sorted(self.stamps[STAMPED]), "append times go back"

    async def begin(self, broker: Broker) -> None:
        """Commit an offset for a group, and start a transactional producer, that are not used again."""
        name = str(len(self.names))
        commits = [Commit(CREATED, len(self.stamps[CREATED]))]
        assert await broker._coordinators.committed_offsets.commit(name, commits, check=no_check) == [None]
        await broker._coordinators.transactions.init_producer(name, 60_000)
        self.names[name] = self.now_ms

    def _sequence(self, topic_partition: TopicPartition) -> int:
        return len(self.stamps[topic_partition])

    async def expire(self, broker: Broker) -> None:
        """What the maintenance does in time."""
        manager = broker._manager
        await manager.undated.look()
        await manager.retention.run_pass(by_time=manager.clock.is_trusted)
        if manager.clock.is_trusted:
            await expire_producers(manager.topics, manager.now_ms, manager.config, manager.disk.errors)
        await broker._coordinators._expire()

    def note_sure(self) -> None:
        """The clock has been right for more than an hour."""
        for facts in self.facts.values():
            for fact in facts:
                fact.sure_ms = self.now_ms if fact.sure_ms is None else fact.sure_ms

    async def check(self, broker: Broker, *, is_sure: bool) -> None:
        """Compare with what must be there, and when the clock `is_sure` with what must be gone."""
        for topic_partition in (STAMPED, CREATED):
            facts, log = self.facts[topic_partition.topic], actor_of(broker, topic_partition).log
            must_stay = next((n for n, fact in enumerate(facts) if self.now_ms - fact.made_ms <= RETENTION_MS), len(facts))
            assert log.log_start_offset <= must_stay, f"{topic_partition}: retention took records of the last 7 days"
            assert len(log.segments) <= len(facts) - log.log_start_offset + 2
            if is_sure:
                gone = (n for n, fact in enumerate(facts) if fact.sure_ms is None or self.now_ms - fact.sure_ms <= RETENTION_MS)
                assert log.log_start_offset >= next(gone, len(facts) - 1), f"{topic_partition}: old records stay"
            await self._check_lookups(broker, topic_partition, log.log_start_offset)
        offsets, ids = broker._coordinators.committed_offsets, broker._coordinators.transactions.ids.owners
        for name, made_ms in self.names.items():
            if self.now_ms - made_ms <= RETENTION_MS:
                assert offsets.offset_of(name, CREATED) is not None, "a committed offset has expired"
                assert name in ids, "a transactional id has expired"
        if self.now_ms - self.facts["stamped"][-1].made_ms < DAY_MS:
            entries = actor_of(broker, STAMPED).log.producers.entries
            assert broker_producer(STAMPED) in entries, "the producer id has expired"

    async def _check_lookups(self, broker: Broker, topic_partition: TopicPartition, start: int) -> None:
        stamps = self.stamps[topic_partition]
        found = [record.timestamp for record in await records_from(broker, topic_partition, start)]
        assert found == stamps[start:], "records or their timestamps have changed"
        for wanted in self.rng.sample(stamps, min(3, len(stamps))):
            expected = next((offset for offset in range(start, len(stamps)) if stamps[offset] >= wanted), -1)
            assert (await broker.reader.offset_for_time(topic_partition, wanted)).offset == expected


def broker_producer(topic_partition: TopicPartition) -> int:
    return 7 if topic_partition == STAMPED else 8


async def create(board: Board) -> None:
    async with board.boot(board.now_ms, cut=False) as broker:
        await broker.topics.create("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        await broker.topics.create("created", 1)
        await board.use(broker)


async def one_start(board: Board) -> None:
    """A start of some hours, after some days without power."""
    rng = board.rng
    board.now_ms += rng.randrange(HOUR_MS, 12 * DAY_MS)
    kind = rng.choice(["1970", "1970", "1970", "last", "right"])
    wall_ms = {"1970": rng.randrange(60_000), "last": board.last_wall_ms, "right": board.now_ms}[kind]
    # A clock that goes on where the last start ended looks right until it jumps: only that jump shows which records are meant.
    answers = kind == "last" or rng.random() < 0.6
    async with board.boot(wall_ms, cut=rng.random() < 0.7) as broker:
        is_plausible = kind != "1970" and (kind == "right" or board.wall_ms() >= EARLIEST_MS)
        if kind == "1970":
            assert not broker._manager.clock.is_plausible
        await board.begin(broker)
        for _ in range(rng.randrange(1, 4)):
            await board.use(broker)
            board.now_ms += rng.randrange(1000, 4 * HOUR_MS)
            await board.expire(broker)
            await board.check(broker, is_sure=False)
        if kind == "right":
            is_sure = is_plausible
        elif answers:
            board.wrong_ms = 0
            await board.use(broker)
            await board.expire(broker)
            await board.check(broker, is_sure=False)
            board.now_ms += rng.choice([60_000, round(HOLD_S * 1000) + 1, DAY_MS])
            await board.use(broker)
            await board.expire(broker)
            is_sure = broker._manager.clock.is_trusted
        else:
            is_sure = False
        if is_sure:
            board.note_sure()
            await board.expire(broker)
        await board.check(broker, is_sure=is_sure)


async def starts(board: Board, days: int) -> int:
    await create(board)
    count, end_ms = 0, board.now_ms + days * DAY_MS
    while board.now_ms < end_ms:
        await one_start(board)
        count += 1
    return count


@pytest.mark.merge
async def test_two_months_of_starts_in_1970_lose_nothing_and_keep_nothing_too_long(tmp_path: Path) -> None:
    assert await starts(Board(tmp_path, random.Random(7)), 60) > 5


@pytest.mark.merge
@pytest.mark.parametrize("seed", range(counts(10, merge=1)))
async def test_a_year_of_starts_in_1970_loses_nothing_and_keeps_nothing_too_long(tmp_path: Path, seed: int) -> None:
    assert await starts(Board(tmp_path, random.Random(seed)), 365) > 40


async def test_a_right_client_of_a_server_in_1970_is_not_refused(tmp_path: Path) -> None:
    board = Board(tmp_path, random.Random(0))
    await create(board)
    ahead_ms = board.now_ms + 300 * DAY_MS
    async with board.boot(0, cut=False) as broker:
        await broker.writer.append(CREATED, logs.batch(ahead_ms))
        board.wrong_ms = 0
        await board.expire(broker)
        with pytest.raises(InvalidTimestampError, match="after the server's clock"):
            await broker.writer.append(CREATED, logs.batch(ahead_ms))


async def test_a_topic_that_is_created_in_1970_is_marked_as_a_whole(tmp_path: Path) -> None:
    board = Board(tmp_path, random.Random(0))
    for wall_ms, cut in ((0, True), (1, True)):
        async with board.boot(wall_ms, cut=cut) as broker:
            if "created" not in broker.topics.names():
                await broker.topics.create("created", 1)
            await broker.writer.append(CREATED, logs.batch(board.wall_ms()))
    board.now_ms += DAY_MS
    async with board.boot(board.now_ms, cut=False) as broker:
        assert broker._manager.clock.is_trusted
        await board.expire(broker)
        log = actor_of(broker, CREATED).log
        assert (log.log_start_offset, log.undated[0].dated_ms, log.undated[-1].end_offset) == (0, board.now_ms, 2)


async def test_a_log_that_is_out_of_service_when_the_clock_becomes_right_is_marked_all_the_same(tmp_path: Path) -> None:
    """Its topic was created in 1970, so no file has a mark of it yet."""
    config = broker_config(tmp_path / "one", tmp_path / "two", topic=TOPIC_KEYS)
    fs, now_ms = GateFileSystem(), EARLIEST_MS + 30 * DAY_MS
    for wall_ms in (1_000_000, now_ms, now_ms + HOUR_MS):
        clock = ServerClock(lambda wall_ms=wall_ms: wall_ms, lambda: 0.0)  # type: ignore[misc]
        async with open_broker_core(config, fs=fs, clock=clock) as broker:
            if wall_ms == now_ms:
                assert [each.error is None for each in broker.directories.describe()] == [True, False]
                continue
            if wall_ms < now_ms:
                await broker.topics.create("created", 2)
                for number in (0, 0, 1, 1):
                    await broker.writer.append(TopicPartition("created", number), logs.batch(wall_ms))
                fs.fail("open", f"two/{TOPICS_FILE}", number=errno.EIO)
            await broker._manager.retention.run_pass(by_time=clock.is_trusted)
            starts = [actor_of(broker, TopicPartition("created", number)).log.log_start_offset for number in (0, 1)]
            assert starts == [0, 0]


@pytest.mark.parametrize("content", [b"", b"{", b'{"format_version": 1}'])
async def test_a_clock_file_that_cannot_be_read_makes_all_records_undated(tmp_path: Path, content: bytes) -> None:
    board = Board(tmp_path, random.Random(0))
    await create(board)
    put(board.fs, f"{tmp_path}/{CLOCK_FILE}", content)
    board.now_ms += 30 * DAY_MS
    async with board.boot(board.now_ms, cut=False) as broker:
        await board.expire(broker)
        assert actor_of(broker, CREATED).log.log_start_offset == 0
        board.now_ms += RETENTION_MS + 1
        board.booted_ms = board.now_ms - round(board.elapsed_s() * 1000)
        await board.expire(broker)
        assert actor_of(broker, CREATED).log.log_start_offset == 1


async def test_records_from_the_far_future_are_no_evidence(tmp_path: Path) -> None:
    board = Board(tmp_path, random.Random(0))
    async with board.boot(board.now_ms, cut=False) as broker:
        keys = {"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"}
        await broker.topics.create("created", 1, keys)
        await broker.writer.append(CREATED, logs.batch(board.now_ms + 10_000 * DAY_MS))
    async with board.boot(board.now_ms, cut=False) as broker:
        assert broker._manager.clock.is_trusted


async def test_clock_check_false_trusts_the_clock_and_ends_what_was_suspended(tmp_path: Path) -> None:
    board = Board(tmp_path, random.Random(0))
    await create(board)
    async with board.boot(0, cut=True) as broker:
        await board.use(broker)
    config = broker_config(tmp_path, durability="fsync", topic=TOPIC_KEYS, clock_check=False)
    clock = ServerClock(board.wall_ms, board.elapsed_s, is_checked=config.clock_check)
    async with open_broker_core(config, fs=board.fs, clock=clock) as broker:
        assert (clock.now_ms(), clock.is_trusted) == (board.wall_ms(), True)
        assert not any(each.is_open for each in actor_of(broker, CREATED).log.undated)
