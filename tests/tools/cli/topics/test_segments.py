from __future__ import annotations

from pathlib import Path

import pytest
import triolog
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker

from tests.support.damaged_batches import damage_batch

from ...client.doors import Door
from ..conftest import Cli

SMALL = {"segment.bytes": "2000"}


@pytest.fixture
def topic(broker: BlockingBroker) -> str:
    """Two partitions, the second one with more than one segment."""
    broker.create_topic("t", 2, SMALL)
    for _ in range(10):
        broker.append("t", [(1_000, None, b"v" * 420, ())], partition=1)
    return "t"


def test_every_segment_is_a_row_and_what_is_not_there_is_said(cli: Cli, topic: str) -> None:
    empty, log = cli.json("topics", "segments", topic)
    assert [each["base_offset"] for each in empty["segments"]] == [0]
    assert empty["segments"][0]["max_timestamp"] is empty["cleaned_up_to"] is None
    assert (log["log_end_offset"], log["segment_count"], log["left_out"]) == (10, len(log["segments"]), 0)
    assert log["segments"][0]["max_timestamp"] == 1_000
    rows = [line.split() for line in cli.ok("topics", "segments", topic, "--timezone", "UTC").splitlines()]
    bases = [row[1] for row in rows if row[:1] == ["1"] and "1970-01-01" in " ".join(row)]
    assert bases == [str(each["base_offset"]) for each in log["segments"]]
    assert sum("active" in row for row in rows) == 2
    one = (topic, "--partition", "1", "--limit", "1")
    [part] = cli.json("topics", "segments", *one)
    assert (len(part["segments"]), part["left_out"]) == (1, part["segment_count"] - 1)
    assert f"t-1: {part['left_out']} more segments; --max shows more" in cli.ok("topics", "segments", *one)
    cli.refused("topics", "segments", topic, "--limit", "10001", code=2)
    assert "there is no topic 'nowhere'" in cli.refused("topics", "segments", "nowhere")
    result = cli.call("topics", "segments", topic, "--partition", "2")
    assert result.exit_code == 1
    assert "t-2: UNKNOWN_TOPIC_OR_PARTITION: topic 't' has partitions 0 to 1, not 2" in result.stdout
    assert cli.json("topics", "segments", topic, "--partition", "2")[0]["error"].endswith("has partitions 0 to 1, not 2")


def test_what_damage_took_is_said(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path, config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t")
        for _ in range(3):
            running.append("t", [b"v"] * 3)
    damage_batch(tmp_path, "t-0", 1)
    with triolog.blocking.open(tmp_path, native="127.0.0.1:0") as running:
        cli = Cli(running)
        assert "t-0: offsets 3 to 5 were lost to corruption; see `triolog gaps`" in cli.ok("topics", "segments", "t")
        cli.ok("gaps", "accept", "t", "0", "3")
        assert "t-0: offsets 3 to 5 were lost to corruption; readers skip them" in cli.ok("topics", "segments", "t")
        [gap] = cli.json("topics", "segments", "t")[0]["gaps"]
        assert (gap["start_offset"], gap["end_offset"], gap["accepted_ms"] > 0) == (3, 6, True)


async def test_both_clients_ask_for_a_topic_or_for_a_partition_from_an_offset_on(
    broker: BlockingBroker, topic: str, door: Door
) -> None:
    second = TopicPartition(topic, 1)
    async with door.client(broker.native) as client:
        admin = door.admin(client)
        whole = await admin.describe_segments(topic)
        assert [each.topic_partition for each in whole] == [TopicPartition(topic, 0), second]
        start = {second: whole[1].segments[1].base_offset}
        [rest] = await admin.describe_segments(second, from_offsets=start, max_segments=1)
        assert rest.segments == whole[1].segments[1:2]
