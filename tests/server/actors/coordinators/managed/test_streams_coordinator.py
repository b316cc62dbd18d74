"""Heartbeats of Streams groups that a broker does not answer at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from triolog.server.broker import Broker, StreamsHeartbeat, StreamsHeartbeatAnswer

from tests.support.brokers import TOPIC, one_partition
from tests.support.streams_groups import GROUP, WORD_COUNT, joining

AT_ONCE: dict[str, Any] = {"group_streams_initial_rebalance_delay_ms": 0}
JOIN = joining(GROUP, "a", TOPIC)
BEAT = StreamsHeartbeat(group_id=GROUP, member_id="a", member_epoch=2)


async def heartbeat(broker: Broker, request: StreamsHeartbeat = JOIN, **changes: Any) -> StreamsHeartbeatAnswer:
    return await broker.groups.streams_heartbeat(attrs.evolve(request, **changes))


async def test_heartbeats_with_missing_topics_or_tasks_to_give_up_have_to_wait(tmp_path: Path) -> None:
    """Whoever asks `heartbeat` makes them, and that takes its time."""
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        await broker.topics.create("words")
        joined = await heartbeat(broker, topology=WORD_COUNT)
        assert joined.missing_topics
        beat = attrs.evolve(BEAT, member_epoch=joined.member_epoch)
        assert broker.groups.streams.heartbeat_now(beat) is None
        assert (await heartbeat(broker, beat)).missing_topics == joined.missing_topics
    async with one_partition(tmp_path / "other", **AT_ONCE) as broker:
        await heartbeat(broker)
        await heartbeat(broker, member_id="b")
        assert broker.groups.streams.heartbeat_now(BEAT) is None
