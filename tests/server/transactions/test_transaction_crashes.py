"""A transaction over two partitions and a group, cut off before each of its writes and syncs: whole or absent everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.support.brokers import PARTITION, TOPIC, running_broker
from tests.support.counting_fs import made_directories
from tests.support.crash_fs import CrashFileSystem
from tests.support.transactions import TransactionalProducer, committed_offset, committed_values, is_stable

pytestmark = pytest.mark.merge  # cut off before each operation on the disk

OTHER: Final = TopicPartition(TOPIC, 1)
OFFSETS: Final = TopicPartition(OFFSETS_TOPIC, 0)
GROUP: Final = "group"
SMALL_FILES: Final = {"segment.index.bytes": "1200"}


class Seen(NamedTuple):
    """What readers of committed records, and the group, see."""

    first: list[str]
    second: list[str]
    offset: int


BEFORE: Final = Seen(["a0"], ["b0"], 1)
AFTER: Final = Seen(["a0", "a1"], ["b0", "b1"], 2)


async def look(broker: Broker) -> Seen:
    return Seen(
        await committed_values(broker, PARTITION),
        await committed_values(broker, OTHER),
        await committed_offset(broker, GROUP, PARTITION),
    )


async def one_transaction(producer: TransactionalProducer, number: int, *, commit: bool = True) -> None:
    await producer.produce(PARTITION, f"a{number}")
    await producer.produce(OTHER, f"b{number}")
    await producer.commit_offset(GROUP, PARTITION, number + 1)
    await (producer.commit() if commit else producer.abort())


async def record_steps(path: Path, fs: CrashFileSystem, *, commit: bool) -> list[CrashFileSystem]:
    """A committed transaction, then one whose steps are kept."""
    async with running_broker(path, fs=fs, durability="fsync", topic=SMALL_FILES) as broker:
        await broker.topics.create(TOPIC, 2)
        producer = await TransactionalProducer.start(broker)
        await one_transaction(producer, 0)
        assert await look(broker) == BEFORE
        moments = fs.moments()
        await one_transaction(producer, 1, commit=commit)
        steps = [*moments, fs.copy()]
        assert await look(broker) == (AFTER if commit else BEFORE)
    return steps


@pytest.mark.parametrize("kind", ["killed", "cut"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_a_transaction_cut_off_anywhere_is_whole_or_absent(fast_path: Path, commit: bool, kind: str) -> None:
    fs = CrashFileSystem()
    [path] = made_directories(fs, fast_path, 1)
    outcomes = []
    steps = await record_steps(path, fs, commit=commit)
    for step in steps if kind == "killed" else [step.crash(None) for step in steps]:
        async with running_broker(path, fs=step, durability="fsync", topic=SMALL_FILES) as broker:
            seen = await look(broker)
            assert seen in (BEFORE, AFTER)
            outcomes.append(seen == AFTER)
            decided = [is_stable(broker, each) for each in (PARTITION, OTHER, OFFSETS)]
            assert all(decided) or seen == BEFORE
            again = await TransactionalProducer.start(broker)
            assert all(is_stable(broker, each) for each in (PARTITION, OTHER, OFFSETS))
            assert await look(broker) == seen
            await one_transaction(again, 9)
            assert await look(broker) == Seen([*seen.first, "a9"], [*seen.second, "b9"], 10)
        async with running_broker(path, fs=step, durability="fsync", topic=SMALL_FILES) as broker:
            assert await look(broker) == Seen([*seen.first, "a9"], [*seen.second, "b9"], 10)
    assert len(outcomes) >= 16
    assert outcomes == sorted(outcomes), "an outcome that was decided changed"
    assert outcomes[-1] is commit
