"""Staging and a commit over two partitions, cut off before each operation of the disk: every record once, or none at all."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, Committed, StagedShare
from triolog.server.storage.paths import STAGE_DIRECTORY

from tests.support.brokers import PARTITION, TOPIC, running_broker, value, values_from
from tests.support.logs import START_MS
from tests.support.step_fs import EveryStepFileSystem, distinct

OTHER: Final = TopicPartition(TOPIC, 1)
APPLICATION: Final = "query"
SMALL_FILES: Final = {"segment.bytes": "220", "segment.index.bytes": "120"}
"""Two or three batches to a segment: what is looked for after a crash lies in several."""


class Seen(NamedTuple):
    """What readers see, and what the application is told."""

    first: list[bytes | None]
    second: list[bytes | None]
    version: int | None


BEFORE: Final = Seen([b"a0"], [b"b0"], 0)
AFTER: Final = Seen([b"a0", b"a1", b"a2", b"a3", b"a4"], [b"b0", b"b1", b"b2"], 1)


async def look(broker: Broker) -> Seen:
    return Seen(await values_from(broker, PARTITION), await values_from(broker, OTHER), broker.last_commit(APPLICATION))


async def stage(broker: Broker, version: int, task: str, partition: TopicPartition, *texts: str) -> StagedShare:
    """One batch for each text."""
    for text in texts:
        batch = build_batch([(START_MS, None, text.encode(), ())])
        staged = await broker.stage(broker.announce_stage(APPLICATION, version, task, partition, batch))
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


async def record_steps(directory: Path, durability: str) -> tuple[list[Path], list[StagedShare], Committed]:
    """A first version, then one whose steps are kept; what was staged for it, and the answer to its commit."""
    running = directory / "running"
    fs = EveryStepFileSystem(running, directory / "steps")
    async with running_broker(running, fs=fs, durability=durability, topic=SMALL_FILES) as broker:
        await broker.create_topic(TOPIC, 2)
        await broker.commit_stage(APPLICATION, 0, await stage_version(broker, 0, 0))
        assert await look(broker) == BEFORE
        with fs.recording():
            shares = await stage_version(broker, 1, 0)
            committed = await broker.commit_stage(APPLICATION, 1, shares)
        assert await look(broker) == AFTER
    return fs.steps, shares, committed


async def check_step(step: Path, durability: str, shares: list[StagedShare], committed: Committed) -> bool:
    """Start where it was cut off, ask again, stage again if need be; answers whether the commit had been decided."""
    async with running_broker(step, durability=durability, topic=SMALL_FILES) as broker:
        seen = await look(broker)
        assert seen in (BEFORE, AFTER)
        try:
            again = await broker.commit_stage(APPLICATION, 1, shares)
        except RequestError as exc:
            refusal = exc.code
        else:
            refusal = None
        if refusal is not None:
            assert refusal in (ErrorCode.INVALID_REQUEST, ErrorCode.CORRUPT_MESSAGE)
            assert seen == BEFORE == await look(broker)
            again = await broker.commit_stage(APPLICATION, 1, await stage_version(broker, 1, 1))
        assert again.by_this_call is (seen == BEFORE)
        if step.name == "killed" or durability == "fsync":
            assert places(again) == places(committed)
        assert counts(again) == counts(committed), "under `os` a power cut leaves gaps where segments were begun"
        assert await look(broker) == AFTER
        assert await broker.commit_stage(APPLICATION, 1, []) == (False, again.partitions)
        assert not list((step / STAGE_DIRECTORY).rglob("*.*"))
        await broker.append(PARTITION, value("later"))
    async with running_broker(step, durability=durability, topic=SMALL_FILES) as broker:
        assert await look(broker) == AFTER._replace(first=[*AFTER.first, b"later"])
    return seen == AFTER


def places(committed: Committed) -> list[tuple[TopicPartition, int, int]]:
    return [(each.topic_partition, each.base_offset, each.end_offset) for each in committed.partitions]


def counts(committed: Committed) -> list[int]:
    return [each.end_offset - each.base_offset for each in committed.partitions]


@pytest.mark.parametrize("kind", ["killed", "cut"])
@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_commit_cut_off_anywhere_is_whole_or_absent(tmp_path: Path, durability: str, kind: str) -> None:
    steps, shares, committed = await record_steps(tmp_path, durability)
    outcomes = [await check_step(step, durability, shares, committed) for step in distinct([step / kind for step in steps])]
    assert len(outcomes) >= 10
    assert outcomes == sorted(outcomes), "what was decided is taken back"
    assert outcomes[-1]


def commit_log_bytes(step: Path) -> int:
    """How much of the commits' log a power cut leaves."""
    [log] = (step / "cut" / "__stage_commits-0").glob("*.log")
    return log.stat().st_size


@pytest.mark.parametrize("kind", ["killed", "cut"])
async def test_carrying_a_commit_out_at_the_start_may_be_cut_off_anywhere_too(tmp_path: Path, kind: str) -> None:
    """From the moment of the decision: every record of the commit is still to be appended."""
    steps, _, committed = await record_steps(tmp_path, "fsync")
    undecided = commit_log_bytes(steps[0])
    decided = next(step for step in steps if commit_log_bytes(step) > undecided)
    running = tmp_path / "again"
    shutil.copytree(decided / "cut", running)
    fs = EveryStepFileSystem(running, tmp_path / "more")
    fs.take_for_synced()
    with ExitStack() as recording:
        recording.enter_context(fs.recording())
        async with running_broker(running, fs=fs, durability="fsync", topic=SMALL_FILES) as broker:
            recording.close()
            assert await look(broker) == AFTER
    copies = distinct([step / kind for step in fs.steps])
    for step in copies:
        async with running_broker(step, durability="fsync", topic=SMALL_FILES) as broker:
            assert await look(broker) == AFTER
            again = await broker.commit_stage(APPLICATION, 1, [])
            assert not again.by_this_call
            assert places(again) == places(committed)
    assert len(copies) >= 10
