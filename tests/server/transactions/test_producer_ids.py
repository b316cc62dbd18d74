"""Producer ids are given out once, whatever happens in between."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import RequestError
from triolog.protocol.records.builder import build_batch
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import FIRST_PRODUCER_ID, MAX_CHECKPOINT_BYTES, PRODUCER_ID_BLOCK_FILE
from triolog.server.transactions.transactional_ids import BLOCK_IDS

from tests.support.brokers import PARTITION, one_partition, running_broker
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS


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
