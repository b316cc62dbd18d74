"""What a start asks of the file system for each log: few calls, because with thousands of logs they are what it costs."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.support.brokers import running_broker, value
from tests.support.call_counting_fs import CallCountingFileSystem

FEW, MANY = 5, 25
MOST_CALLS: Final = {"clean": 24, "killed": 54}
"""By log. A small file takes four: opening, measuring, reading, closing. Of a killed log four files and the directory are
synced, here each by itself."""
MOST_MADE: Final = {"clean": 0, "killed": 2}
"""Files that are made anew: the time index and the producer snapshot, which say something else than before."""


async def calls_of_a_start(directory: Path, partitions: int, how: str) -> Counter[str]:
    """What is done to logs of two records, which were stopped in order, or written to once more and killed then."""
    left = directory / "left"
    async with running_broker(directory / "first") as broker:
        await broker.topics.create("t", partitions)
        await append_to_all(broker, partitions)
    shutil.copytree(directory / "first", left)
    if how == "killed":
        async with running_broker(directory / "first") as broker:
            await append_to_all(broker, partitions)
            shutil.rmtree(left)
            shutil.copytree(directory / "first", left)
    fs = CallCountingFileSystem()
    async with running_broker(left, fs=fs) as broker:
        calls = fs.calls.copy()
        ends = [each.log_end_offset for each in broker.topics.describe("t").partitions]
        assert ends == [2 if how == "killed" else 1] * partitions
    return calls


async def append_to_all(broker: Broker, partitions: int) -> None:
    for number in range(partitions):
        await broker.writer.append(TopicPartition("t", number), value("x"))


@pytest.mark.parametrize("how", ["clean", "killed"])
async def test_each_log_adds_few_calls_to_a_start(tmp_path: Path, how: str) -> None:
    few = await calls_of_a_start(tmp_path / "few", FEW, how)
    many = await calls_of_a_start(tmp_path / "many", MANY, how)
    each = {name: (many[name] - few[name]) / (MANY - FEW) for name in many}
    assert each.pop("made") <= MOST_MADE[how]
    assert sum(each.values()) <= MOST_CALLS[how], each
    assert each["list_directory"] == 1
