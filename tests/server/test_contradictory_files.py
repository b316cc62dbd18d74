"""Small files of a data directory that contradict each other, or are somebody else's: which count, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from triolog.server.storage.directory.topics_file import TOPICS_FILE
from triolog.server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    encode_clean_shutdown,
    encode_offsets,
)
from triolog.server.storage.errors import CheckpointError, LogDirectoryError

from tests.support.brokers import PARTITION, TOPIC, one_partition, running_broker, value, values_from

VALUES = [f"value {number}".encode() for number in range(8)]
TRIMMED_TO = 3


@pytest.fixture
async def stopped(fast_path: Path) -> Path:
    """A directory with one partition of eight records, stopped in order."""
    path = fast_path / "data"
    async with one_partition(path) as broker:
        for number in range(len(VALUES)):
            await broker.writer.append(PARTITION, value(f"value {number}"))
    return path


async def trim(path: Path) -> None:
    async with one_partition(path) as broker:
        await broker.logs.delete_records(PARTITION, TRIMMED_TO)


@pytest.mark.parametrize("is_trimmed", [True, False])
async def test_a_log_start_that_only_the_checkpoint_has_hides_nothing_after_our_own_stop(
    stopped: Path, caplog: pytest.LogCaptureFixture, is_trimmed: bool
) -> None:
    """A flipped digit: 3 becomes 7. What lies below would be deleted next."""
    if is_trimmed:
        await trim(stopped)
    (stopped / LOG_START_FILE).write_bytes(encode_offsets({PARTITION: 7}))
    async with one_partition(stopped) as broker:
        start = broker.reader.snapshot(PARTITION).log_start_offset
        assert start == (TRIMMED_TO if is_trimmed else 0)
        assert await values_from(broker, offset=start) == VALUES[start:]
    assert LOG_START_FILE in caplog.text
    assert "using the smaller one" in caplog.text


async def test_a_log_start_that_kafka_has_raised_counts(stopped: Path) -> None:
    """Its marker of a clean stop has a broker epoch."""
    await trim(stopped)
    (stopped / LOG_START_FILE).write_bytes(encode_offsets({PARTITION: 7}))
    (stopped / CLEAN_SHUTDOWN_FILE).write_bytes(encode_clean_shutdown(12))
    async with one_partition(stopped) as broker:
        assert broker.reader.snapshot(PARTITION).log_start_offset == 7


async def test_a_recovery_point_above_the_high_watermark_is_no_loss(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A flipped digit: 8 becomes 98. It was taken for 90 lost offsets."""
    (stopped / RECOVERY_POINT_FILE).write_bytes(encode_offsets({PARTITION: 98}))
    async with one_partition(stopped) as broker:
        snapshot = broker.reader.snapshot(PARTITION)
        assert (snapshot.log_end_offset, snapshot.gaps) == (8, ())
        assert await values_from(broker) == VALUES
    assert f"{RECOVERY_POINT_FILE} records the end offset 98, {HIGH_WATERMARK_FILE} records 8" in caplog.text


async def test_identities_that_differ_are_told_with_both_files(fast_path: Path) -> None:
    """One of them may be damaged, and it need not be the second one."""
    one, two = fast_path / "one", fast_path / "two"
    async with running_broker(one, two, cluster_id="right"):
        """Both are made."""
    damaged = (one / META_PROPERTIES_FILE).read_bytes().replace(b"right", b"rigit")
    (one / META_PROPERTIES_FILE).write_bytes(damaged)
    with pytest.raises(LogDirectoryError) as refused:
        async with running_broker(one, two):
            raise AssertionError("it started")
    for said in (one / META_PROPERTIES_FILE, two / META_PROPERTIES_FILE, "cluster.id=right", "rigit", "Restore the right one"):
        assert str(said) in str(refused.value)


async def test_a_start_that_is_refused_leaves_the_markers_of_clean_stops(fast_path: Path) -> None:
    one, two = fast_path / "one", fast_path / "two"
    async with running_broker(one, two):
        """Both are made."""
    topics = (two / TOPICS_FILE).read_bytes()
    (two / TOPICS_FILE).write_bytes(topics[:-5])
    with pytest.raises(CheckpointError, match=str(two / TOPICS_FILE)):
        async with running_broker(one, two):
            raise AssertionError("it started")
    assert (one / CLEAN_SHUTDOWN_FILE).exists()
    assert (two / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_directory_whose_name_ends_in_a_date_is_no_partition_of_twenty_million(stopped: Path) -> None:
    """Each partition below it would have been a row in memory, and said to be missing."""
    (stopped / "backup-20261126").mkdir()
    with pytest.raises(LogDirectoryError, match=r"backup-20261126 would be partition 20261126 .*: move it away"):
        async with running_broker(stopped):
            raise AssertionError("it started")


async def test_a_configuration_in_topics_json_that_cannot_be_names_the_file_and_the_topic(stopped: Path) -> None:
    document = json.loads((stopped / TOPICS_FILE).read_bytes())
    del document["crc32c"]
    document["topics"][0]["configs"] = {"retention.ms": "soon"}
    (stopped / TOPICS_FILE).write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=rf"{TOPICS_FILE}, topic '{TOPIC}': .*retention\.ms='soon'.*Correct it"):
        async with running_broker(stopped):
            raise AssertionError("it started")
