"""Producers that are faster than any look at the free space, on file systems that can really be full; and ten days on one of
64 MiB whose uplink is down for half of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from triolog.protocol.errors import ErrorCode, OffsetOutOfRangeError, RequestError
from triolog.protocol.limits import MIB
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.logs.disk_guard import SHARE_OF_DEVICE

from tests.support.brokers import actor_of, running_broker
from tests.support.failing_device import mounted_device
from tests.support.logs import START_MS, Clock

pytestmark = pytest.mark.merge  # devices are filled

HOUR_MS: Final = 3_600_000
DAYS: Final = 10
SIZE: Final = 64 * MIB
SEGMENTS: Final = {"segment.bytes": str(MIB), "segment.index.bytes": "4096", "retention.ms": "-1"}
PRODUCERS: Final = 8
NO_CLIENT_MEETS: Final = "No space left"


@pytest.fixture(params=["tmpfs", "ext4"])
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with mounted_device(tmp_path, request.param, SIZE) as path:
        yield path


@pytest.fixture(autouse=True)
def _warnings_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def free_bytes(device: Path) -> int:
    found = os.statvfs(device)
    return found.f_bavail * found.f_frsize


def records(first: int, count: int, value_bytes: int, timestamp: int) -> bytes:
    return build_batch([(timestamp, b"%d" % number, os.urandom(value_bytes), ()) for number in range(first, first + count)])


async def produce(broker: Broker, partition: TopicPartition, total_bytes: int) -> list[RequestError]:
    """Batches of 100 KB, one after the other, as fast as they are taken."""
    batch, errors = records(0, 10, 10_000, START_MS), []
    for _ in range(total_bytes // len(batch)):
        try:
            await broker.writer.append(partition, batch)
        except RequestError as exc:
            errors.append(exc)
    return errors


async def produce_everywhere(broker: Broker, total_bytes: int) -> list[RequestError]:
    """From several producers at once, each into its own partition."""
    errors: list[RequestError] = []

    async def one(number: int) -> None:
        errors.extend(await produce(broker, TopicPartition("topic", number), total_bytes // PRODUCERS))

    async with trio.open_nursery() as nursery:
        for number in range(PRODUCERS):
            nursery.start_soon(one, number)
    return errors


def logs_of(broker: Broker) -> list[int]:
    return [actor_of(broker, TopicPartition("topic", number)).log.size_in_bytes for number in range(PRODUCERS)]


@pytest.mark.parametrize(("durability", "preallocate"), [("os", "true"), ("fsync", "false")])
async def test_a_producer_is_refused_before_the_device_is_full(
    device: Path, durability: str, preallocate: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops short of the reserve's last quarter, whatever it sends within a second."""
    keys = {"durability": durability, "preallocate": preallocate}
    async with running_broker(device / "data", topic=SEGMENTS | keys, disk_reserve_bytes=-1) as broker:
        await broker.topics.create("topic", PRODUCERS)
        room = free_bytes(device)
        errors = await produce_everywhere(broker, 2 * SIZE)
        assert {error.code for error in errors} == {ErrorCode.POLICY_VIOLATION}
        assert free_bytes(device) >= SIZE // SHARE_OF_DEVICE // 8
        assert sum(logs_of(broker)) > room * (0.9 if preallocate == "false" else 0.7), "and it is used up to there"
    assert NO_CLIENT_MEETS not in caplog.text


@pytest.mark.parametrize(("durability", "preallocate"), [("os", "true"), ("fsync", "false")])
async def test_under_drop_oldest_a_producer_is_never_refused(
    device: Path, durability: str, preallocate: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"durability": durability, "disk.full.policy": "drop-oldest", "preallocate": preallocate}
    async with running_broker(device / "data", topic=SEGMENTS | keys, disk_reserve_bytes=-1) as broker:
        await broker.topics.create("topic", PRODUCERS)
        assert await produce_everywhere(broker, 3 * SIZE) == []
        assert sum(logs_of(broker)) > SIZE * (0.7 if preallocate == "false" else 0.5), "not more goes than has to"
        assert broker.directories.describe()[0].given_up_segments > 100
    assert NO_CLIENT_MEETS not in caplog.text


@pytest.mark.parametrize("policy", ["refuse", "drop-oldest"])
async def test_all_logs_together_stay_below_their_bound(tmp_path: Path, policy: str) -> None:
    keys = SEGMENTS | {"disk.full.policy": policy}
    async with running_broker(tmp_path, topic=keys, log_max_bytes=20 * MIB) as broker:
        await broker.topics.create("topic", PRODUCERS)
        errors = await produce_everywhere(broker, 40 * MIB)
        assert sum(logs_of(broker)) in range(10 * MIB if policy == "drop-oldest" else 19 * MIB, 20 * MIB + 1)
        assert {error.code for error in errors} == ({ErrorCode.POLICY_VIOLATION} if policy == "refuse" else set())


@attrs.define(eq=False)
class Uplink:
    """A forwarder: reads on from what its group has committed, notices gaps, commits."""

    broker: Broker
    partition: TopicPartition
    forwarded: int = 0
    missed: int = 0
    late: int = 0
    """At most so many were dropped between being forwarded and being committed: the guard looks once a second."""
    next_offset: int = 0

    async def forward(self) -> None:
        """Everything there is."""
        committed, missed = self.next_offset, self.missed
        while self.next_offset < actor_of(self.broker, self.partition).log.high_watermark:
            asked = FetchPartition(self.partition, self.next_offset, MIB)
            (answer,) = await self.broker.reader.fetch([asked], max_bytes=MIB)
            if isinstance(answer.error, OffsetOutOfRangeError):
                start = actor_of(self.broker, self.partition).log.log_start_offset
                self.missed += start - self.next_offset
                self.next_offset = start
                continue
            assert answer.error is None
            assert answer.fetched is not None
            *_, (header, _) = iter_batches(answer.fetched.records)
            end = header.next_offset
            self.forwarded += end - self.next_offset
            self.next_offset = end
        assert await self.broker.offsets.commit("uplink", [(self.partition, self.next_offset, None)]) == [None]
        dropped = actor_of(self.broker, self.partition).log.log_start_offset - committed
        self.late += max(0, dropped - (self.missed - missed))


async def test_ten_days_with_the_uplink_down_for_half_add_up(
    device: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """200 MB by two topics: what is forwarded goes after a day, what is not when there is no other room, first of the topic
    that matters less. Forwarded and missed records are those that were produced, and the forwarder misses what is said to be
    dropped."""
    partitions = [TopicPartition("telemetry", 0), TopicPartition("alarms", 0)]
    keys = SEGMENTS | {"disk.full.policy": "drop-oldest", "retention.hold.groups": "uplink", "retention.ms": str(24 * HOUR_MS)}
    keys |= {"file.delete.delay.ms": "0"}
    produced = 0
    async with running_broker(device / "data", clock=clock, topic=keys, disk_reserve_bytes=-1) as broker:
        for partition in partitions:
            await broker.topics.create(partition.topic, 1, {"disk.full.priority": str(partitions.index(partition))})
        uplinks = [Uplink(broker, partition) for partition in partitions]
        for hour in range(DAYS * 24):
            for partition, share in zip(partitions, (9, 1), strict=True):
                for _ in range(share):
                    await broker.writer.append(partition, records(produced, 10, 9_000, clock.now))
                produced += 10 * share
            if not 48 <= hour < 168:  # five days without a link
                for uplink in uplinks:
                    await uplink.forward()
            clock.advance(HOUR_MS)
            await broker._manager.retention.run_pass()
        logs = [actor_of(broker, partition).log for partition in partitions]
        dropped = [log.derived.dropped.records for log in logs]
        assert dropped[0] > 0
        assert dropped[1] == 0, "what matters more stays"
        for uplink, count in zip(uplinks, dropped, strict=True):
            assert uplink.missed <= count <= uplink.missed + uplink.late
        assert sum(uplink.forwarded + uplink.missed for uplink in uplinks) == produced == DAYS * 24 * 100
        newest_day = [24 * 90, 24 * 10]
        assert [log.log_end_offset - log.log_start_offset for log in logs] >= newest_day, "retention took what was forwarded"
        assert sum(log.size_in_bytes for log in logs) < SIZE // 2
    assert NO_CLIENT_MEETS not in caplog.text
    assert "which not all of retention.hold.groups=uplink had committed" in caplog.text
    async with running_broker(device / "data", clock=clock, topic=keys, disk_reserve_bytes=-1) as broker:
        assert [actor_of(broker, each).log.derived.dropped.records for each in partitions] == dropped, "and it is known later"
