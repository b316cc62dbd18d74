"""A coordinator's topic: made once, appended to in log order, read to its end, and never waited for beyond its actor's life."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import CorruptRecordError, ErrorCode, RequestError
from triolog.protocol.records.batch import BatchHeader
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Bytes, TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.internal_topic import InternalTopic
from triolog.server.storage.log.append import AppendResult
from triolog.server.storage.log.changes import truncate_to

from tests.support.brokers import actor_of, running_broker, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock

PLACE = TopicPartition(OFFSETS_TOPIC, 0)


def topic_of(broker: Broker, partitions: int = 1) -> InternalTopic:
    return InternalTopic(broker._manager, Clock(), OFFSETS_TOPIC, partitions)


def batch(value: bytes) -> bytes:
    return build_batch([(START_MS, b"key", value, ())])


def ignore(_: object) -> None:
    """Nothing is kept in memory."""


async def test_a_topic_that_many_need_at_once_is_made_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker, 3)
        assert topic.partitions == 3
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(topic.ensure)
        assert len(broker.topics.describe(OFFSETS_TOPIC).partitions) == 3
        assert topic_of(broker, 7).partitions == 3


async def test_answers_come_in_log_order_before_their_callers_go_on(tmp_path: Path) -> None:
    stored: list[int] = []

    async def append(topic: InternalTopic) -> None:
        offsets: list[int] = []

        def on_stored(result: AppendResult) -> None:
            offsets.append(result.base_offset)
            stored.append(result.base_offset)

        await topic.append(PLACE, batch(b"v"), on_stored)
        assert len(offsets) == 1

    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(append, topic)
    assert stored == list(range(30))


async def test_a_replay_sees_every_batch_of_every_segment_and_refuses_damage(tmp_path: Path) -> None:
    seen: list[int] = []

    def take(header: BatchHeader, _: Bytes) -> None:
        seen.append(header.base_offset)

    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        for number in range(5):
            await topic.append(PLACE, batch(b"%d" % number), ignore)
            await actor_of(broker, PLACE).perform(lambda log: log.roll())
        await topic.replay(PLACE, take)
        assert seen == list(range(5))
        with (tmp_path / f"{OFFSETS_TOPIC}-0" / f"{4:020d}.log").open("r+b") as log:
            log.seek(-2, 2)
            log.write(b"\xff")
        with pytest.raises(CorruptRecordError):
            await topic.replay(PLACE, take)


async def test_nobody_waits_for_an_actor_that_was_given_up(tmp_path: Path, fs: GateFileSystem) -> None:
    errors: list[RequestError] = []

    async def append(topic: InternalTopic) -> None:
        with trio.CancelScope(shield=True):
            try:
                await topic.append(PLACE, batch(b"v"), ignore)
            except RequestError as exc:
                errors.append(exc)

    async with running_broker(tmp_path, fs=fs) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        async with held(fs.hold("write", ".log"), append, topic) as nursery:
            nursery.start_soon(append, topic)
            await until(lambda: len(actor_of(broker, PLACE)._mailbox) == 1)
            actor_of(broker, PLACE).abandon()
    assert [error.code for error in errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "whether it took effect is unknown" in str(errors[0])


async def test_a_replay_short_of_the_high_watermark_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        await topic.append(PLACE, batch(b"whole"), ignore)
        three = build_batch([(START_MS, b"key", b"cut", ())] * 3)
        await topic.append(PLACE, three, ignore)
        await topic.replay(PLACE, lambda header, _: seen.append(header.base_offset))
        assert (seen, caplog.text) == ([0, 1], "")
        await actor_of(broker, PLACE).perform(lambda log: truncate_to(log, 3))
        await topic.replay(PLACE, lambda header, _: seen.append(header.base_offset))
    assert seen == [0, 1, 0]
    assert f"{PLACE} has nothing that can be read from offset 1 up to its high watermark 3" in caplog.text
