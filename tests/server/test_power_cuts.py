"""What a kill and a power cut leave of a log and of a group's offsets, by durability: docs/operations/durability.md."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition

from tests.support.altered_files import alter_one
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, records_from, running_broker, value
from tests.support.counting_fs import made_directories
from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem
from tests.support.transactions import committed_offset

RECORDS: Final = 24
GROUP: Final = "group"
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
MODES: Final = {"fsync": {}, "group:1": {}, "os": {"flush.messages": "5"}}
"""Durability -> keys of the topic."""


@attrs.frozen
class Moment:
    """The files at a moment, and what the server had said by then."""

    files: CrashFileSystem
    acknowledged: int
    synced: int
    """So many records were on the device."""
    committed: int
    is_commit_synced: bool
    altered: list[str] = attrs.field(factory=list)
    """What was done to the files before a start."""


async def moments_of(path: Path, fs: CrashFileSystem, durability: str) -> list[Moment]:
    """Records and commits of offsets, one after the other."""
    found = []
    async with one_partition(path, fs=fs, durability=durability, topic=MODES[durability]) as broker:
        for number in range(RECORDS):
            await broker.writer.append(PARTITION, value(str(number)))
            await broker.offsets.commit(GROUP, [(PARTITION, number, None)])
            offsets = actor_of(broker, OFFSETS).log
            is_commit_synced = offsets.recovery_point == offsets.log_end_offset
            synced = actor_of(broker).log.recovery_point
            found.append(Moment(fs.copy(), number + 1, synced, number, is_commit_synced))
    return found


async def is_kept(
    path: Path, moments: list[Moment], files_of: Callable[[Moment], CrashFileSystem], promised_of: Callable[[Moment], int]
) -> list[tuple[Moment, int]]:
    """Start a server on each, with one derived file of another content; answers what the group has committed there. What there
    is of the log are its first records."""
    committed = []
    rng = random.Random()
    for moment in moments:
        files = files_of(moment)
        moment.altered.append(alter_one(files, str(path), rng))
        async with running_broker(path, fs=files) as broker:
            assert TOPIC in broker.topics.names()
            values = [int(record.value or b"") for record in await records_from(broker)]
            assert values == list(range(len(values))), moment.altered
            assert promised_of(moment) <= len(values) <= moment.acknowledged, moment.altered
            committed.append((moment, await committed_offset(broker, GROUP, PARTITION)))
    return committed


@pytest.mark.parametrize("durability", MODES)
async def test_a_kill_takes_nothing_that_was_acknowledged(tmp_path: Path, durability: str) -> None:
    fs = CrashFileSystem()
    [path] = made_directories(fs, tmp_path, 1)
    moments = random.sample(await moments_of(path, fs, durability), counts(20, commit=4))
    kept = await is_kept(path, moments, lambda moment: moment.files, lambda moment: moment.acknowledged)
    assert all(committed == moment.committed for moment, committed in kept)


@pytest.mark.parametrize("durability", MODES)
async def test_a_power_cut_takes_no_more_than_what_was_not_synced(tmp_path: Path, durability: str) -> None:
    """Under `fsync` nothing that was acknowledged with acks=all, also no commit of an offset."""
    fs = CrashFileSystem()
    [path] = made_directories(fs, tmp_path, 1)
    moments = random.sample(await moments_of(path, fs, durability), counts(20, commit=6))
    if durability == "fsync":
        assert all(moment.synced == moment.acknowledged and moment.is_commit_synced for moment in moments)
    rng = random.Random()
    kept = await is_kept(path, moments, lambda moment: moment.files.crash(rng), lambda moment: moment.synced)
    assert all(committed == moment.committed for moment, committed in kept if moment.is_commit_synced)
    assert all(committed <= moment.committed for moment, committed in kept)
