"""State belongs to a topic id, not to a name: a new topic inherits nothing from a deleted topic with the same name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
)

from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker, value, values_from

OLD_RECORDS = 50
CHECKPOINTS = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_OFFSET_FILE)


async def fill_and_trim(broker: Broker, directory: Path) -> None:
    """Leave a topic whose every checkpoint has an entry above 0."""
    await broker.topics.create(TOPIC, 1)
    for number in range(OLD_RECORDS):
        await broker.writer.append(PARTITION, value(f"old-{number}"))
    await broker.logs.delete_records(PARTITION, OLD_RECORDS - 10)
    await broker._manager.log_directories.write_checkpoints()
    (directory / CLEANER_OFFSET_FILE).write_bytes(encode_offsets({PARTITION: OLD_RECORDS - 5}))
    assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " not in (directory / name).read_text()] == []


async def recreate(broker: Broker, records: int) -> None:
    await broker.topics.delete(TOPIC)
    await broker.topics.create(TOPIC, 1)
    for number in range(records):
        await broker.writer.append(PARTITION, value(f"new-{number}"))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("records", [5, OLD_RECORDS - 5])
async def test_recreated_topic_keeps_every_record_after_a_kill(tmp_path: Path, is_restarted: bool, records: int) -> None:
    directory, killed = tmp_path / "data", tmp_path / "killed"
    async with running_broker(directory) as broker:
        await fill_and_trim(broker, directory)
        if not is_restarted:
            await recreate(broker, records)
            shutil.copytree(directory, killed)
    if is_restarted:
        async with running_broker(directory) as broker:
            await recreate(broker, records)
            shutil.copytree(directory, killed)
    async with running_broker(killed) as broker:
        log = actor_of(broker).log
        assert (log.log_start_offset, log.log_end_offset) == (0, records)
        assert await values_from(broker) == [b"new-%d" % number for number in range(records)]


async def test_checkpoints_of_other_topics_stay(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await fill_and_trim(broker, tmp_path)
        await broker.topics.create("other", 1)
        assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " not in (tmp_path / name).read_text()] == []
        await broker.topics.delete(TOPIC)
        await broker.topics.create(TOPIC, 1)
        assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " in (tmp_path / name).read_text()] == []


async def test_unreadable_checkpoint_does_not_stop_a_creation(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (tmp_path / LOG_START_FILE).write_bytes(b"0\nmany\n")
        await broker.topics.create(TOPIC, 1)
        await broker.writer.append(PARTITION, value("x"))
        assert await values_from(broker) == [b"x"]
