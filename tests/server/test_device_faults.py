"""A device that refuses, under a whole broker that does everything at once: appends and rolls, transactions, groups, topics,
checkpoints, retention. The table in docs/operations/failures.md says what is expected of each fault.

Whatever fails, the broker goes on or ends with a named error; every refusal is an answer that names what failed; and once the
device is well again, every record that was acknowledged is there, no offset was given to two of them, and no committed offset
went back.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.directory.clock_file import CLOCK_FILE
from triolog.server.storage.directory.log_directory import is_passing
from triolog.server.storage.disk.checkpoints import CLEANER_OFFSET_FILE
from triolog.server.storage.errors import LogDirectoryError

from tests.support import brokers, failing_device, gate_fs, logs, transactions
from tests.support.counts import counts, draws

pytestmark = pytest.mark.merge  # each operation on the disk is refused

PLAIN: Final = TopicPartition("plain", 0)
MOVED: Final = TopicPartition("moved", 0)
TRIMMED: Final = TopicPartition("trimmed", 0)
GROUP: Final = "readers"
SETTINGS: Final = {
    "segment.bytes": "400",
    "segment.index.bytes": "240",
    "index.interval.bytes": "0",
    "file.delete.delay.ms": "0",
    "retention.bytes": "-1",
}
CASES: Final = 50
FINAL: Final = ("sync_directory", "rename", "truncate")
"""What takes a log offline whatever the error is: nobody knows how far it went."""
HOUR_MS: Final = 3_600_000
YEAR_MS: Final = 365 * 24 * HOUR_MS

NUMBERS: Final = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE]
WRITES: Final = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS]
FAULTS: Final = {
    "open": (NUMBERS, ["", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".tmp"]),
    "write": (WRITES, ["", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".tmp"]),
    "sync": ([errno.EIO, errno.ENOSPC, errno.EDQUOT], ["", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".tmp"]),
    "truncate": ([errno.EIO, errno.EROFS], ["", ".log", ".index", ".timeindex"]),
    "rename": (WRITES, ["", ".log", ".tmp"]),
    "unlink": ([errno.EIO, errno.EROFS], ["", ".index", ".deleted"]),
    "sync_directory": ([errno.EIO, errno.EMFILE], ["", "plain-0"]),
    "make_directory": (WRITES, [""]),
    "read": ([errno.EIO], ["", ".log", ".index"]),
    "map": ([errno.ENOMEM, errno.EMFILE], [""]),
}
"""What an operation can fail with, and on which files."""


@attrs.frozen
class Fault:
    operation: str
    number: int
    suffix: str
    times: int | None

    def __str__(self) -> str:
        return f"{self.operation} of *{self.suffix}: {errno.errorcode[self.number]}, {self.times or 'all'} times"


def faults() -> Iterator[Fault]:
    """All in the merge tier, a part of them in the commit tier."""
    every = [
        Fault(operation, number, suffix, times)
        for operation, (numbers, suffixes) in FAULTS.items()
        for number in numbers
        for suffix in suffixes
        for times in (1, None)
    ]
    rng = draws(4)
    yield from rng.sample(every, min(len(every), counts(CASES)))


@attrs.define(eq=False)
class Workload:
    """What a broker was asked for, and what it answered."""

    stored: dict[TopicPartition, dict[int, bytes]] = attrs.field(factory=dict)
    """Acknowledged records by offset."""
    committed: int = -1
    """The last offset of the group that was acknowledged."""
    outcomes: dict[str, bool] = attrs.field(factory=dict)
    """By text of a transactional record: whether it was committed, where that was answered."""
    trimmed_to: int = 0
    retains_by_time: bool = True
    errors: list[Exception] = attrs.field(factory=list)
    number: int = 0

    async def guard(self, call: Callable[[], Awaitable[object]]) -> bool:
        """Whether it was done. A refusal is kept; what is no answer comes out."""
        try:
            await call()
        except (RequestError, OSError) as exc:
            self.errors.append(exc)
            return False
        return True

    async def put(self, broker: Broker, partition: TopicPartition) -> None:
        self.number += 1
        content = b"%d of %b " % (self.number, str(partition).encode()) + bytes(60)
        result = await broker.writer.append(partition, [(logs.START_MS + self.number, b"key", content, ())], acks=-1)
        known = self.stored.setdefault(partition, {})
        assert result.base_offset not in known, f"{partition}: offset {result.base_offset} is given out twice"
        known[result.base_offset] = content

    async def move(self, broker: Broker, *, commit: bool) -> None:
        """One transaction."""
        producer = await transactions.TransactionalProducer.start(broker)
        self.number += 1
        text = f"transaction {self.number}"
        await producer.produce(MOVED, text)
        await (producer.commit() if commit else producer.abort())
        self.outcomes[text] = commit

    async def commit(self, broker: Broker, offset: int) -> None:
        [error] = await broker.offsets.commit(GROUP, [(PLAIN, offset, None)])
        if error is not None:
            raise error
        self.committed = offset

    async def trim(self, broker: Broker) -> None:
        self.trimmed_to = broker.reader.snapshot(TRIMMED).high_watermark  # also when it is refused: its outcome is unknown then
        await broker.logs.delete_records(TRIMMED, -1)

    async def round(self, broker: Broker) -> None:
        """Everything once or a few times. Raises LogDirectoryError when the broker has no directory left."""
        manager = broker._manager
        for number in range(4):
            for partition in (PLAIN, TRIMMED):
                await self.guard(lambda partition=partition: self.put(broker, partition))  # type: ignore[misc]
            await self.guard(lambda number=number: self.move(broker, commit=number % 2 == 0))  # type: ignore[misc]
        await self.guard(lambda: self.commit(broker, self.number))
        await self.guard(lambda: self.trim(broker))
        await self.guard(lambda: broker.topics.alter_configs("plain", {"retention.ms": str(10**12 + self.number)}))
        await self.guard(lambda: broker.topics.create(f"new-{self.number}"))
        await self.guard(lambda: broker.producers.init(None, 0))
        await self.guard(manager.log_directories.write_checkpoints)
        await self.guard(lambda: manager.retention.run_pass(by_time=self.retains_by_time))
        await self.guard(manager.delete_doomed)
        await self.guard(lambda: brokers.records_from(broker, PLAIN))
        await self.guard(lambda: broker.reader.offset_for_time(PLAIN, logs.START_MS + self.number))

    async def check(self, broker: Broker) -> None:
        """On a well device: everything that was acknowledged is there."""
        for partition, stored in self.stored.items():
            start = broker.reader.snapshot(partition).log_start_offset
            assert start <= (self.trimmed_to if partition == TRIMMED else 0), f"{partition} starts at {start}"
            found = {record.offset: record.value for record in await brokers.records_from(broker, partition, start)}
            missing = {
                offset: content for offset, content in stored.items() if found.get(offset) != content and offset >= start
            }
            assert not missing, f"{partition}: acknowledged and not there: {missing}"
        values = set(await transactions.committed_values(broker, MOVED))
        for text, is_committed in self.outcomes.items():
            assert (text in values) == is_committed, f"{text}: {is_committed=}"
        [(_, offset, _)] = await broker.offsets.fetch(GROUP, [PLAIN])
        assert offset >= self.committed, f"the committed offset went back from {self.committed} to {offset}"


async def set_up(broker: Broker, work: Workload) -> None:
    for partition in (PLAIN, MOVED, TRIMMED):
        await broker.topics.create(partition.topic)
    await work.round(broker)
    assert not work.errors


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "triolog")


async def _suffer(path: Path, fault: Fault, *, heals: bool) -> None:
    """A round on a good device, one with the fault, then either a healed device or a stop as it is, and a restart."""
    work, fs = Workload(), gate_fs.GateFileSystem()
    try:
        async with brokers.running_broker(path, fs=fs, durability="fsync", topic=SETTINGS, cleaner_enable=False) as broker:
            await set_up(broker, work)
            fs.fail(fault.operation, fault.suffix, number=fault.number, times=fault.times)
            await work.round(broker)
            if heals:
                fs.heal()
                await work.round(broker)
                if is_passing(OSError(fault.number, "")) and fault.operation not in FINAL:
                    before = len(work.errors)
                    await work.round(broker)
                    assert len(work.errors) == before, f"refused on a well device: {work.errors[before:]}"
    except (LogDirectoryError, OSError) as exc:
        if heals and is_passing(OSError(fault.number, "")):
            raise AssertionError("the broker ended") from exc
    async with brokers.running_broker(path, durability="fsync", topic=SETTINGS, cleaner_enable=False) as broker:
        await work.check(broker)
        before = len(work.errors)
        await work.round(broker)
        assert len(work.errors) == before, f"refused after a restart: {work.errors[before:]}"
        await work.check(broker)


@pytest.mark.parametrize("heals", [True, False])
async def test_whatever_the_device_refuses_nothing_acknowledged_is_lost(fast_path: Path, heals: bool) -> None:
    for number, fault in enumerate(faults()):
        try:
            await _suffer(fast_path / str(number), fault, heals=heals)
        except BaseException as exc:
            raise AssertionError(f"{fault} ({heals=}): {exc!r}") from exc


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
async def test_a_commit_that_the_device_refuses_is_an_answer_and_the_older_offset_stays(tmp_path: Path, number: int) -> None:
    fs, work = gate_fs.GateFileSystem(), Workload()
    async with brokers.running_broker(tmp_path, fs=fs, durability="fsync", topic=SETTINGS) as broker:
        await set_up(broker, work)
        before = work.committed
        fs.fail("write", "__consumer_offsets-0/00000000000000000000.log", number=number)
        with pytest.raises(RequestError, match=r"__consumer_offsets-0.*Nothing of the append is stored"):
            await work.commit(broker, before + 1)
        assert await broker.offsets.fetch(GROUP, [PLAIN]) == [(PLAIN, before, "")]
        await work.commit(broker, before + 2)
        assert await broker.offsets.fetch(GROUP, [PLAIN]) == [(PLAIN, before + 2, "")]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EISDIR])
async def test_a_cleaner_checkpoint_that_cannot_be_read_does_not_end_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    work = Workload()
    async with brokers.running_broker(tmp_path, topic=SETTINGS) as broker:
        await set_up(broker, work)
    fs = gate_fs.GateFileSystem()
    fs.fail("open", CLEANER_OFFSET_FILE, number=number, times=None)
    async with brokers.running_broker(tmp_path, fs=fs, topic=SETTINGS, cleaner_backoff_ms=1) as broker:
        await brokers.until(lambda: "cleaning compacted logs from their start" in caplog.text)
        await work.put(broker, PLAIN)
        await work.check(broker)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EISDIR])
async def test_a_clock_file_that_cannot_be_read_makes_all_records_undated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    work = Workload()
    async with brokers.running_broker(tmp_path, topic=SETTINGS) as broker:
        await set_up(broker, work)
    fs = gate_fs.GateFileSystem()
    fs.fail("open", CLOCK_FILE, number=number, times=None)
    async with brokers.running_broker(tmp_path, fs=fs, topic=SETTINGS) as broker:
        assert "treating all records as undated" in caplog.text
        await work.put(broker, PLAIN)
        await work.check(broker)


def test_what_a_device_refused_before_a_restart_is_on_it_before_it_is_served(tmp_path: Path) -> None:
    """A write-back that fails in a real kernel, on a real ext4."""
    if reason := failing_device.run_alone("tests.server.failing_device_story", tmp_path):
        pytest.skip(reason)


@pytest.mark.parametrize("step_ms", [1000 - HOUR_MS, YEAR_MS])
async def test_a_clock_that_jumps_loses_no_record_no_offset_and_no_transaction(tmp_path: Path, step_ms: int) -> None:
    """A transaction that is open meanwhile too. Retention is run by the broker, which notices the jump."""
    clock, work = logs.Clock(), Workload(retains_by_time=False)
    settings = SETTINGS | {"retention.ms": str(24 * HOUR_MS)}
    async with brokers.running_broker(
        tmp_path, clock=clock, durability="fsync", topic=settings, retention_check_interval_ms=5
    ) as broker:
        await set_up(broker, work)
        producer = await transactions.TransactionalProducer.start(broker, "open")
        await producer.produce(MOVED, "open across the jump")
        clock.advance(step_ms)
        await work.round(broker)
        await producer.produce(MOVED, "open across the jump, 2")
        await producer.commit()
        work.outcomes |= {"open across the jump": True, "open across the jump, 2": True}
        records = [record for record in await brokers.records_from(broker, PLAIN) if record.timestamp >= logs.START_MS + 1]
        found = await broker.reader.offset_for_time(PLAIN, logs.START_MS + 1)
        assert found.offset == records[0].offset
        assert not work.errors
        await work.check(broker)
