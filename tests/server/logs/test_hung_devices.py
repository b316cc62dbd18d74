"""A device that hangs holds up what is on it, and nothing else."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import RequestError, TopicAlreadyExistsError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker, until
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS

RECORD: Final = (START_MS, None, b"x", ())
COUNT: Final = 40
"""Partitions in two directories: more in each than there are places among the threads."""


def log_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}/00000000000000000000.log"


async def append(broker: Broker, partition: TopicPartition) -> None:
    try:
        await broker.writer.append(partition, [RECORD])
    except RequestError:
        """Its topic was deleted."""


async def test_partitions_in_another_directory_do_not_wait_for_a_hung_one(tmp_path: Path, fs: GateFileSystem) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_broker(first, second, fs=fs, durability="fsync") as broker:
        await broker.topics.create(TOPIC, COUNT)
        partitions = [TopicPartition(TOPIC, number) for number in range(COUNT)]
        hung = [each for each in partitions if str(first) in actor_of(broker, each).log.directory]
        assert 10 < len(hung) < COUNT - 10
        async with trio.open_nursery() as nursery:
            with ExitStack() as gates:
                for each in hung:
                    gates.enter_context(fs.hold("sync", log_of(each)))
                    nursery.start_soon(append, broker, each)
                await trio.testing.wait_all_tasks_blocked(0.05)
                for each in partitions:
                    if each not in hung:
                        with trio.fail_after(30):
                            await append(broker, each)
                assert all(actor_of(broker, each).log.high_watermark == 0 for each in hung)
        assert all(actor_of(broker, each).log.high_watermark == 1 for each in partitions)


async def test_checkpoints_in_another_directory_do_not_wait_for_a_hung_one(tmp_path: Path, fs: GateFileSystem) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_broker(first, second, fs=fs) as broker:
        await broker.topics.create(TOPIC, 4)
        partitions = [TopicPartition(TOPIC, number) for number in range(4)]
        for each in partitions:
            await append(broker, each)
        there = next(each for each in partitions if str(second) in actor_of(broker, each).log.directory)
        async with trio.open_nursery() as nursery:
            with fs.hold("sync", str(first / "recovery-point-offset-checkpoint.tmp")) as gate:
                nursery.start_soon(broker._manager.log_directories.write_checkpoints)
                await gate.reached()
                with trio.fail_after(30):
                    assert await broker.logs.delete_records(there, 1) == 1


async def test_a_topic_whose_deletion_waits_for_a_device_holds_up_no_other(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC)
        async with trio.open_nursery() as nursery:
            with fs.hold("write", log_of(PARTITION)) as gate:
                nursery.start_soon(append, broker, PARTITION)
                await gate.reached()
                nursery.start_soon(broker.topics.delete, TOPIC)
                await until(lambda: TOPIC not in broker.topics.names())
                with trio.fail_after(30):
                    await broker.topics.create("other")
                    await broker.topics.alter_configs("other", {"retention.ms": "1000"})
                with pytest.raises(TopicAlreadyExistsError, match="is being deleted"):
                    await broker.topics.create(TOPIC)
        await broker.topics.create(TOPIC)
        assert sorted(broker.topics.names()) == ["other", TOPIC]
    async with running_broker(tmp_path, fs=fs) as broker:
        assert sorted(broker.topics.names()) == ["other", TOPIC]
