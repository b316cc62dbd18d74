"""Staging and a commit over two partitions, cut off before each operation of the disk: every record once, or none at all."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.batch import with_producer
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, Committed, ReaderView, StagedShare
from triolog.server.storage.disk.paths import STAGE_DIRECTORY

from tests.server.stages.test_stage_commits import APPLICATION, OTHER, batch, decide
from tests.support.brokers import PARTITION, TOPIC, running_broker, value, values_from
from tests.support.counting_fs import made_directories
from tests.support.crash_fs import CrashFileSystem, distinct, put

pytestmark = pytest.mark.merge  # cut off before each operation on the disk

SMALL_FILES: Final = {"segment.bytes": "220", "segment.index.bytes": "120"}
"""Two or three batches to a segment: what is looked for after a crash lies in several."""


class Recorded(NamedTuple):
    steps: list[CrashFileSystem]
    shares: list[StagedShare]
    committed: Committed


class Seen(NamedTuple):
    """What readers see, and what the application is told."""

    first: list[bytes | None]
    second: list[bytes | None]
    version: int | None


BEFORE: Final = Seen([b"a0"], [b"b0"], 0)
AFTER: Final = Seen([b"a0", b"a1", b"a2", b"a3", b"a4"], [b"b0", b"b1", b"b2"], 1)


async def look(broker: Broker) -> Seen:
    return Seen(
        await values_from(broker, PARTITION), await values_from(broker, OTHER), broker.stage_commits.last_version(APPLICATION)
    )


async def stage(broker: Broker, version: int, task: str, partition: TopicPartition, *texts: str) -> StagedShare:
    """One batch for each text."""
    for text in texts:
        staged = await broker.stages.write(await broker.stages.announce(APPLICATION, version, task, partition, batch(text)))
    return StagedShare(task, partition, staged)


async def stage_version(broker: Broker, version: int, attempt: int) -> list[StagedShare]:
    """What a job of two tasks stages, and a third one that does not count."""
    if not version:
        return [await stage(broker, 0, "0", PARTITION, "a0"), await stage(broker, 0, "0", OTHER, "b0")]
    await stage(broker, version, f"zombie {attempt}", PARTITION, "a9")
    return [
        await stage(broker, version, f"0.{attempt}", PARTITION, "a1", "a2", "a3"),
        await stage(broker, version, f"0.{attempt}", OTHER, "b1"),
        await stage(broker, version, f"1.{attempt}", PARTITION, "a4"),
        await stage(broker, version, f"1.{attempt}", OTHER, "b2"),
    ]


def left(steps: list[CrashFileSystem], kind: str) -> list[CrashFileSystem]:
    """What is there after each of these moments."""
    return distinct([step.copy() if kind == "killed" else step.copy().crash(None) for step in steps])


async def record_steps(path: Path, fs: CrashFileSystem, durability: str) -> Recorded:
    """A first version, then one whose steps are kept; what was staged for it, and the answer to its commit."""
    async with running_broker(path, fs=fs, durability=durability, topic=SMALL_FILES) as broker:
        await broker.topics.create(TOPIC, 2)
        await broker.stage_commits.commit(APPLICATION, 0, await stage_version(broker, 0, 0))
        assert await look(broker) == BEFORE
        moments = fs.moments()
        shares = await stage_version(broker, 1, 0)
        committed = await broker.stage_commits.commit(APPLICATION, 1, shares)
        steps = [*moments, fs.copy()]
        assert await look(broker) == AFTER
    return Recorded(steps, shares, committed)


async def check_step(path: Path, step: CrashFileSystem, recorded: Recorded, *, durability: str, loses: bool) -> bool:
    """Start where it was cut off, ask again, stage again if need be; answers whether the commit had been decided."""
    _, shares, committed = recorded
    async with running_broker(path, fs=step, durability=durability, topic=SMALL_FILES) as broker:
        seen = await look(broker)
        assert seen in (BEFORE, AFTER)
        try:
            again = await broker.stage_commits.commit(APPLICATION, 1, shares)
        except RequestError as exc:
            refusal = exc.code
        else:
            refusal = None
        if refusal is not None:
            assert refusal in (ErrorCode.INVALID_REQUEST, ErrorCode.CORRUPT_MESSAGE)
            assert seen == BEFORE == await look(broker)
            again = await broker.stage_commits.commit(APPLICATION, 1, await stage_version(broker, 1, 1))
        assert again.by_this_call is (seen == BEFORE)
        if not loses or durability == "fsync":
            assert places(again) == places(committed)
        assert counts(again) == counts(committed), "under `os` a power cut leaves gaps where segments were begun"
        assert await look(broker) == AFTER
        assert await broker.stage_commits.commit(APPLICATION, 1, []) == (False, again.partitions)
        assert not [name for name in step.tree() if STAGE_DIRECTORY in name and "." in name.rpartition("/")[2]]
        await broker.writer.append(PARTITION, value("later"))
    async with running_broker(path, fs=step, durability=durability, topic=SMALL_FILES) as broker:
        assert await look(broker) == AFTER._replace(first=[*AFTER.first, b"later"])
    return seen == AFTER


def places(committed: Committed) -> list[tuple[TopicPartition, int, int]]:
    return [(each.topic_partition, each.base_offset, each.end_offset) for each in committed.partitions]


def counts(committed: Committed) -> list[int]:
    return [each.end_offset - each.base_offset for each in committed.partitions]


@pytest.mark.parametrize("kind", ["killed", "cut"])
@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_commit_cut_off_anywhere_is_whole_or_absent(fast_path: Path, durability: str, kind: str) -> None:
    fs = CrashFileSystem()
    [path] = made_directories(fs, fast_path, 1)
    recorded = await record_steps(path, fs, durability)
    steps = left(recorded.steps, kind)
    outcomes = [await check_step(path, step, recorded, durability=durability, loses=kind == "cut") for step in steps]
    assert len(recorded.steps) >= 10
    assert outcomes == sorted(outcomes), "what was decided is taken back"
    assert outcomes[-1]


async def cut_off_with_a_hole(folder: Path, holes: set[int], appended: int) -> tuple[Path, CrashFileSystem, list[StagedShare]]:
    """Five batches for the first partition are decided, so many of them appended and not forced to the device; of what the
    crash leaves, `holes` are zeros."""
    fs = CrashFileSystem()
    [path] = made_directories(fs, folder, 1)
    async with running_broker(path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        shares = [await stage(broker, 0, "0", PARTITION, *"abcde"), await stage(broker, 0, "0", OTHER, "f")]
        await decide(broker, shares)
        decided = broker.stage_commits.log.applications[APPLICATION].value
        assert decided is not None
        for number, text in enumerate("abcde"[:appended]):
            records = with_producer(batch(text), decided.producer_id, decided.producer_epoch, number)
            await broker.writer.append(PARTITION, bytes(records))
        cut_off = fs.copy()
    log = f"{path}/{PARTITION}/00000000000000000000.log"
    data, size = bytearray(cut_off.content(log)), len(batch("a"))
    for number in holes:
        data[number * size : (number + 1) * size] = bytes(size)
    put(cut_off, log, bytes(data))
    cut_off.sync_all()
    return path, cut_off, shares


@pytest.mark.parametrize(("holes", "appended"), [({0}, 5), ({1}, 5), ({1, 3}, 5), ({0, 1}, 3), ({2}, 4), ({3}, 4), ({1}, 1)])
async def test_records_that_a_crash_took_are_appended_after_the_rest(fast_path: Path, holes: set[int], appended: int) -> None:
    path, fs, shares = await cut_off_with_a_hole(fast_path, holes, appended)
    view = ReaderView(skip_gaps=True)
    for _ in range(2):
        async with running_broker(path, fs=fs) as broker:
            found = await values_from(broker, PARTITION, view=view)
            assert sorted(each or b"" for each in found) == [b"a", b"b", b"c", b"d", b"e"]
            assert await values_from(broker, OTHER) == [b"f"]
            answer = await broker.stage_commits.commit(APPLICATION, 0, shares)
            assert not answer.by_this_call
            assert broker.stage_commits.stages.staged_bytes == 0


async def test_appending_what_was_lost_may_be_cut_off_anywhere_too(fast_path: Path) -> None:
    path, fs, _ = await cut_off_with_a_hole(fast_path, {1}, 4)
    moments = fs.moments()
    async with running_broker(path, fs=fs):
        pass
    view = ReaderView(skip_gaps=True)
    copies = [*left(moments, "killed"), *left(moments, "cut")]
    for step in copies:
        async with running_broker(path, fs=step) as broker:
            found = await values_from(broker, PARTITION, view=view)
            assert sorted(each or b"" for each in found) == [b"a", b"b", b"c", b"d", b"e"]
            assert await values_from(broker, OTHER) == [b"f"]
    assert len(copies) >= 10


def commit_log_bytes(step: CrashFileSystem) -> int:
    """How much of the commits' log a power cut leaves."""
    tree = step.copy().crash(None).tree()
    return sum(len(content) for name, content in tree.items() if "__stage_commits-0/" in name and name.endswith(".log"))


@pytest.mark.parametrize("kind", ["killed", "cut"])
async def test_carrying_a_commit_out_at_the_start_may_be_cut_off_anywhere_too(fast_path: Path, kind: str) -> None:
    """From the moment of the decision: every record of the commit is still to be appended."""
    fs = CrashFileSystem()
    [path] = made_directories(fs, fast_path, 1)
    steps, _, committed = await record_steps(path, fs, "fsync")
    undecided = commit_log_bytes(steps[0])
    decided = next(step for step in steps if commit_log_bytes(step) > undecided)
    running = decided.crash(None)
    moments = running.moments()
    async with running_broker(path, fs=running, durability="fsync", topic=SMALL_FILES) as broker:
        steps = [*moments, running.copy()]
        assert await look(broker) == AFTER
    for step in left(steps, kind):
        async with running_broker(path, fs=step, durability="fsync", topic=SMALL_FILES) as broker:
            assert await look(broker) == AFTER
            again = await broker.stage_commits.commit(APPLICATION, 1, [])
            assert not again.by_this_call
            assert places(again) == places(committed)
    assert len(steps) >= 10
