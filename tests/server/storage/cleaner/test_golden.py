"""Logs that Apache Kafka 4.1 wrote and compacted, compacted again here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.types import Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.cleaner.checkpoint import CLEANER_OFFSET_FILE, read_cleaner_offsets
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.support import compaction
from tests.support.compaction import put
from tests.support.golden import GOLDEN
from tests.support.logs import DrivenLog, open_driven

COMPACTED: Final = TopicPartition("compacted", 0)
STATES: Final = pytest.mark.parametrize("state", ["clean", "unclean"])


def opened(tmp_path: Path, state: str, partition: TopicPartition) -> DrivenLog:
    directory = tmp_path / str(partition)
    shutil.copytree(GOLDEN / state / str(partition), directory, copy_function=shutil.copyfile)
    directory.chmod(0o755)
    expected: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
    config = LogConfig().overlay(expected[partition.topic]["config"])
    return open_driven(
        directory,
        config=attrs.evolve(config, cleanup_policy=("compact",)),
        topic_partition=partition,
        was_clean=state == "clean",
    )


def last_of_each_key(records: list[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


@STATES
def test_the_cleaner_checkpoint_of_kafka_is_read(state: str) -> None:
    assert read_cleaner_offsets(OsFileSystem(), str(GOLDEN / state)) == {COMPACTED: 894}
    assert (GOLDEN / state / CLEANER_OFFSET_FILE).read_bytes() == b"0\n1\ncompacted 0 894\n"


@STATES
@pytest.mark.parametrize("checkpoint", [894, None])
def test_a_log_that_kafka_compacted_is_compacted_again(tmp_path: Path, state: str, checkpoint: int | None) -> None:
    driven = opened(tmp_path, state, COMPACTED)
    before = driven.records()
    for number in range(5):
        put(driven, f"new-{number % 2}", number, timestamp=driven.clock())
    done = compaction.clean(driven, checkpoint)
    after = driven.records()
    assert set(last_of_each_key(before).values()) <= set(after)
    assert [(record.offset, record.key) for record in after[-2:]] == [(903, b"new-1"), (904, b"new-0")]
    assert len({record.key for record in after}) == len(after)
    assert done.result.next_dirty_offset == driven.log.log_end_offset == 905
    again = driven.reopen(was_clean=False, recovery_point=driven.log.recovery_point)
    assert again.records() == after
    assert again.log.log_end_offset == 905


@STATES
def test_transactions_that_kafka_wrote_keep_their_answers(tmp_path: Path, state: str) -> None:
    """What was aborted is gone, what was committed is all there: the keys of that log are all different or superseded."""
    driven = opened(tmp_path, state, TopicPartition("txn", 0))
    aborted = [txn for segment in driven.log.segments for txn in driven.run(segment.view().aborted_transactions())]
    before = driven.records()
    hidden = {
        record.offset
        for header, batch in compaction.raw_batches(driven)
        if header.is_transactional and not header.is_control
        for record in compaction.iter_records(batch, header)
        if any(
            txn.producer_id == header.producer_id and txn.first_offset <= record.offset <= txn.last_offset for txn in aborted
        )
    }
    end = driven.log.last_stable_offset
    shown = [record for record in before if record.offset not in hidden and record.offset < end]
    done = compaction.clean(driven)
    after = driven.records()
    cleaned = [record for record in after if record.offset < done.chosen.end_offset]
    assert hidden
    assert not {record.offset for record in cleaned} & hidden
    assert last_of_each_key([record for record in after if record.offset not in hidden and record.offset < end]) == {
        key: record for key, record in last_of_each_key(shown).items() if key is not None
    }
    again = driven.reopen(was_clean=False, recovery_point=driven.log.recovery_point)
    assert again.records() == after
