"""Staging, splits and leases through both clients, against a broker in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from triolog.protocol.errors import InvalidRequestError, UnknownTopicOrPartitionError
from triolog.protocol.native.messages import SplitPoint
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.admin import Admin
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.client.connection import connect

from tests.support.logs import START_MS

T0 = TopicPartition("t", 0)
GONE = TopicPartition("gone", 0)
BATCH = build_batch([(START_MS, None, b"a", ())])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    with BlockingBroker(tmp_path, durability="os") as running:
        running.create_topic("t")
        yield running


def test_the_blocking_client_stages_and_commits_once(broker: BlockingBroker) -> None:
    assert broker.native is not None
    with BlockingClient(broker.native) as client:
        admin = BlockingAdmin(client)
        assert admin.last_commit("query") is None
        staged = admin.stage("query", 3, "task", {T0: BATCH})
        admin.stage("query", 3, "zombie", {T0: BATCH})
        admin.abort_stage("query", 3, ["zombie"])
        assert admin.commit_stage("query", 3, {"task": staged}).committed
        assert not admin.commit_stage("query", 3, {"task": staged}).committed
        assert admin.last_commit("query") == 3
        assert [record.value for record in broker.fetch("t", 0)] == [b"a"]
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.stage("query", 4, "task", {GONE: BATCH})
        with pytest.raises(InvalidRequestError, match="nothing staged"):
            admin.commit_stage("query", 4, {"task": staged})


def test_the_blocking_client_cuts_ranges_and_leases_files(broker: BlockingBroker) -> None:
    broker.append("t", BATCH)
    assert broker.native is not None
    with BlockingClient(broker.native) as client:
        admin = BlockingAdmin(client)
        assert admin.split_points({T0: (0, 1)}, 1000) == {T0: (SplitPoint(0, len(BATCH)),)}
        lease = admin.lease_segments([T0], 60_000)
        [segment] = lease.partitions[0].segments
        assert Path(segment.path).read_bytes()[: segment.size_bytes] != b""
        assert admin.lease_segments([T0], 60_000, lease.lease_id) == lease
        admin.lease_segments([], 0, lease.lease_id)
        assert not Path(segment.path).exists()
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.lease_segments([T0, GONE], 60_000)
        assert list(Path(segment.path).parents[2].rglob("*.log")) == [], "nobody could end this lease"


async def test_the_client_for_trio_has_the_same_calls(broker: BlockingBroker) -> None:
    assert broker.native is not None
    async with connect(*broker.native) as client:
        admin = Admin(client)
        staged = await admin.stage("query", 0, "task", {T0: BATCH})
        await admin.abort_stage("query", 0, ["other"])
        assert (await admin.commit_stage("query", 0, {"task": staged})).committed
        assert await admin.last_commit("query") == 0
        assert await admin.split_points({T0: (0, 1)}, 1000) == {T0: (SplitPoint(0, len(BATCH)),)}
        assert (await admin.lease_segments([T0], 60_000)).partitions[0].high_watermark == 1
