"""Checksums of closed index files, and what happens without: no wrong entry decides what is read, deleted or compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from triolog.server.config import LogConfig
from triolog.server.offline.repair import reindex
from triolog.server.storage.cleaner.selection import choose
from triolog.server.storage.directory.inventory import read_partition
from triolog.server.storage.indexes.index import IndexTail
from triolog.server.storage.log.derived_files import FILE_NAME, read_facts
from triolog.server.storage.log.retention import confirm_below, expire_segments, oldest_first
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.logs import START_MS, TOPIC_PARTITION, DrivenLog, batch, open_driven

LARGEST: Final = 5000
TIMES: Final = (0, 5, 100, LARGEST, 20, 30, 40, 50, 60, 70)
"""Of a segment whose youngest record is neither its first nor its last."""
CONFIG: Final = LogConfig().overlay({"index.interval.bytes": "1", "segment.index.bytes": "2400", "retention.ms": "1000"})
NAME: Final = f"{0:020}.timeindex"


def stored(directory: Path, config: LogConfig = CONFIG) -> DrivenLog:
    """Two closed segments and an active one."""
    driven = open_driven(directory, config=config)
    for number in range(3):
        for time in TIMES:
            driven.append(batch(START_MS + time + 100_000 * number, key=b"key"))
        if number < 2:
            driven.roll()
    driven.close()
    return driven


def shortened(driven: DrivenLog) -> DrivenLog:
    """The first time index without its last entry: what is left is true, and hides the largest timestamp. Open it as a server
    that knows no checksum."""
    path = Path(driven.log.directory)
    (path / FILE_NAME).unlink()
    content = (path / NAME).read_bytes()
    assert len(content) == 3 * 12
    (path / NAME).write_bytes(content[:24])
    return reopened(driven)


def reopened(driven: DrivenLog) -> DrivenLog:
    return driven.reopen(was_clean=True, recovery_point=driven.log.log_end_offset)


def test_retention_reads_the_largest_timestamp_from_the_batches_where_no_checksum_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driven = shortened(stored(tmp_path))
    log = driven.log
    assert log.segments.first.max_timestamp == START_MS + 100
    assert driven.run(expire_segments(log, START_MS + LARGEST + 1000)) == 0
    assert (log.log_start_offset, log.segments.first.max_timestamp) == (0, START_MS + LARGEST)
    assert "the batches say" in caplog.text
    assert driven.offset_for(START_MS + LARGEST).offset == TIMES.index(LARGEST)
    assert driven.run(expire_segments(log, START_MS + LARGEST + 1001)) == 1


def test_a_full_disk_takes_the_oldest_segment_by_its_batches(tmp_path: Path) -> None:
    first = shortened(stored(tmp_path / "first"))
    second = open_driven(tmp_path / "second", config=CONFIG)
    second.append(batch(START_MS + 200))
    second.roll()
    logs = [first.log, second.log]
    assert list(oldest_first(logs, 1)) == [0]
    assert first.run(confirm_below(first.log, len(TIMES)))
    assert list(oldest_first(logs, 1)) == [1]


def test_compaction_leaves_young_records_by_their_batches(tmp_path: Path) -> None:
    config = CONFIG.overlay({"cleanup.policy": "compact", "min.compaction.lag.ms": "1000"})
    driven = shortened(stored(tmp_path, config))
    chosen = driven.run(choose(driven.log, None, START_MS + LARGEST + 999))
    assert chosen.end_offset == 0
    chosen = driven.run(choose(driven.log, None, START_MS + LARGEST + 1000))
    assert chosen.end_offset == len(TIMES)


def test_a_changed_entry_in_the_middle_is_found_before_the_first_lookup_and_the_index_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driven = stored(tmp_path)
    path = tmp_path / NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:23] + b"\x07" + whole[24:])
    again = reopened(driven)
    assert "CRC" not in caplog.text  # nobody has looked anything up
    for offset, time in enumerate(TIMES[:4]):
        assert again.offset_for(START_MS + time).offset == offset
    assert caplog.text.count("CRC") == 1
    again.close()
    assert not path.exists()
    assert reopened(again).offset_for(START_MS + LARGEST).offset == TIMES.index(LARGEST)
    assert path.read_bytes() == whole


def test_a_healthy_log_opens_and_is_looked_up_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = stored(tmp_path)
    facts = read_facts(driven.fs, driven.log.directory)
    assert facts is not None
    assert list(facts.lookups) == [0, 10, 20]
    again = reopened(driven)
    for number in range(3):
        assert again.offset_for(START_MS + LARGEST + 100_000 * number).offset == 10 * number + 3
    again.append(batch(START_MS + 300_000))
    again.roll()
    again.close()
    assert not caplog.text
    assert reopened(again).log.segments.first.is_max_timestamp_certain


def test_an_append_that_an_index_cannot_accept_is_stored_without_its_entry(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=CONFIG)
    driven.append(batch())
    segment = driven.log.active
    segment.offset_index.tail = IndexTail(1, 1_000_000, 0)
    segment.time_index.tail = IndexTail(1, START_MS, 1_000_000)
    for number in range(5):
        assert driven.append(batch(START_MS + number)).base_offset == number + 1
    assert driven.offset_for(START_MS + 3).offset == 4
    driven.roll()
    driven.append(batch(START_MS + 9))
    assert driven.offsets() == list(range(7))
    driven.close()
    again = reopened(driven)
    assert again.offsets() == list(range(7))
    assert again.log.segments.first.time_index.last_entry == (START_MS + 4, 5)


def test_reindexing_leaves_no_checksum_of_what_it_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / str(TOPIC_PARTITION)
    driven = stored(directory)
    for path in directory.glob("*.index"):
        path.write_bytes(path.read_bytes()[:8])  # entries farther apart, as Kafka writes them
    files = read_partition(driven.fs, str(directory))
    list(reindex(driven.fs, files, CONFIG.overlay({"index.interval.bytes": "300"}), ProducerState(), lambda size: None))
    again = reopened(driven)
    assert again.offset_for(START_MS + LARGEST).offset == TIMES.index(LARGEST)
    assert not caplog.text
