from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import InvalidRequestError, UnknownTopicOrPartitionError
from triolog.protocol.native.messages import SplitPoint
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker

from tests.support.logs import START_MS

from ..doors import Door

T0 = TopicPartition("t", 0)
GONE = TopicPartition("gone", 0)
STAGED = build_batch([(START_MS, None, b"a", ())])


async def test_a_stage_is_committed_once(broker: BlockingBroker, door: Door) -> None:
    async with door.client(broker.native) as client:
        admin = door.admin(client)
        assert await admin.last_commit("query") is None
        staged = await admin.stage("query", 3, "task", {T0: STAGED})
        await admin.stage("query", 3, "zombie", {T0: STAGED})
        await admin.abort_stage("query", 3, ["zombie"])
        assert (await admin.commit_stage("query", 3, {"task": staged})).committed
        assert not (await admin.commit_stage("query", 3, {"task": staged})).committed
        assert await admin.last_commit("query") == 3
        assert [record.value for record in broker.fetch("t", 0)] == [b"a"]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.stage("query", 4, "task", {GONE: STAGED})
        with pytest.raises(InvalidRequestError, match="nothing staged"):
            await admin.commit_stage("query", 4, {"task": staged})


async def test_ranges_are_split_and_files_leased(broker: BlockingBroker, door: Door) -> None:
    broker.append("t", STAGED)
    async with door.client(broker.native) as client:
        admin = door.admin(client)
        assert await admin.split_points({T0: (0, 1)}, 1000) == {T0: (SplitPoint(0, len(STAGED)),)}
        lease = await admin.lease_segments([T0], 60_000)
        [segment] = lease.partitions[0].segments
        assert lease.partitions[0].high_watermark == 1
        assert Path(segment.path).read_bytes()[: segment.size_bytes] != b""
        assert await admin.lease_segments([T0], 60_000, lease.lease_id) == lease
        await admin.lease_segments([], 0, lease.lease_id)
        assert not Path(segment.path).exists()
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.lease_segments([T0, GONE], 60_000)
        assert list(Path(segment.path).parents[2].rglob("*.log")) == [], "nobody could end this lease"
