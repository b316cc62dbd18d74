"""Log directories that Apache Kafka 4.1.0 wrote, and what that broker answered about them.

`clean` is after a clean shutdown, `unclean` a copy taken while the broker ran: preallocated or missing indexes, checkpoints
of before. Three things differ, and are compared with what they should be:

- Kafka answers no lookup by time on the compacted log, because its first segment was emptied and still has a largest timestamp;
  here the answer is that of a scan.
- Kafka answers the largest timestamp of the emptied log with a record below the log start offset; here there is none.
- Between the questions and the copies the broker ended the transaction that was open: one marker more, at offset 204.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from bisect import bisect_right
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, Isolation, Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.checkpoints import CLEANER_OFFSET_FILE, read_cleaner_offsets
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import partition_directory
from triolog.server.storage.indexes.transaction_index import decode_entries
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from triolog.server.storage.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from triolog.server.storage.producers.producer_state import ProducerState
from triolog.server.storage.recovery.rebuild import scan_segment

from tests.support import compaction
from tests.support.compaction import put
from tests.support.golden import GOLDEN
from tests.support.logs import START_MS, DrivenLog, batch, open_driven, scan_for_timestamp

EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
ALL: Final = [
    TopicPartition(topic, int(partition)) for topic, answers in EXPECTED.items() for partition in answers["partitions"]
]
EACH: Final = pytest.mark.parametrize("partition", ALL, ids=str)
COMMITTED: Final = Isolation.READ_COMMITTED
STATES: Final = pytest.mark.parametrize("state", ["clean", "unclean"])

TXN: Final = TopicPartition("txn", 0)
COMPACTED: Final = TopicPartition("compacted", 0)
LAST_MARKER: Final = 204
BEHIND_THE_OPEN_TRANSACTION: Final = frozenset(range(199, 204))
"""Plain records that committed reads saw once the marker was there."""
NOT_READABLE_IN_KAFKA: Final = {TopicPartition("emptied", 0): (19, 1_700_086_419_000)}


def opened(
    tmp_path: Path, state: str, partition: TopicPartition, *, with_recovery_point: bool = False, **config: Any
) -> DrivenLog:
    """A writable copy of one golden log, opened as the next start of a server would."""
    source = GOLDEN / state
    directory = tmp_path / partition_directory(partition)
    shutil.copytree(source / partition_directory(partition), directory, copy_function=shutil.copyfile)
    directory.chmod(0o755)
    starts = checkpoints.decode_offsets(checkpoints.LOG_START_FILE, (source / checkpoints.LOG_START_FILE).read_bytes())
    points = checkpoints.decode_offsets(
        checkpoints.RECOVERY_POINT_FILE, (source / checkpoints.RECOVERY_POINT_FILE).read_bytes()
    )
    return open_driven(
        directory,
        config=attrs.evolve(LogConfig().overlay(EXPECTED[partition.topic]["config"]), **config),
        topic_partition=partition,
        was_clean=state == "clean",
        recovery_point=points[partition] if with_recovery_point else 0,
        log_start_offset=starts.get(partition, 0),
    )


def answers_of(partition: TopicPartition) -> dict[str, Any]:
    answers: dict[str, Any] = EXPECTED[partition.topic]["partitions"][str(partition.partition)]
    return answers


def clean_files(partition: TopicPartition) -> dict[str, bytes]:
    return files(GOLDEN / "clean" / partition_directory(partition))


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def segment_files(content: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in content.items() if name.endswith((".log", ".index", ".timeindex"))}


def as_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def described_records(driven: DrivenLog, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[list[Any]]:
    """Every record that a consumer is given, in the form of expected.json."""
    kinds = {
        header.base_offset: "LogAppendTime" if header.timestamp_type else "CreateTime"
        for segment in driven.log.segments
        for header, _ in iter_batches(Path(segment.log.path).read_bytes()[: segment.size])
    }
    starts = sorted(kinds)
    return [
        [
            record.offset,
            kinds[starts[bisect_right(starts, record.offset) - 1]],
            record.timestamp,
            as_text(record.key),
            as_text(record.value),
            [[key, as_text(value)] for key, value in record.headers],
        ]
        for record in driven.records(isolation)
    ]


@STATES
@EACH
def test_records_and_offsets_by_time_are_what_kafka_answered(tmp_path: Path, state: str, partition: TopicPartition) -> None:
    driven = opened(tmp_path, state, partition)
    for isolation in Isolation:
        check_records(driven, partition, isolation)
        check_offsets_for_times(driven, partition, isolation)
        check_ends(driven, partition, isolation)
    if partition == TXN:
        end = driven.log.last_stable_offset
        assert end == LAST_MARKER + 1
        files = (GOLDEN / state / "txn-0").glob("*.txnindex")
        named = {txn for offset in range(end) for txn in driven.read(offset, 1, isolation=COMMITTED).aborted or ()}
        assert named == {txn for path in files for txn in decode_entries("", path.read_bytes())}


def check_records(driven: DrivenLog, partition: TopicPartition, isolation: Isolation) -> None:
    answers = answers_of(partition)
    hidden = set(answers.get("not_in_read_committed", ())) if isolation is Isolation.READ_COMMITTED else set()
    hidden -= BEHIND_THE_OPEN_TRANSACTION if partition == TXN else set()
    assert described_records(driven, isolation) == [record for record in answers["records"] if record[0] not in hidden]


def check_offsets_for_times(driven: DrivenLog, partition: TopicPartition, isolation: Isolation) -> None:
    expected = answers_of(partition)[isolation.value]["offsets_for_times"]
    assert expected
    for timestamp, offset, found in expected:
        answer = driven.offset_for(timestamp, isolation)
        if partition == COMPACTED:
            assert (offset, found) == (-1, -1)
            found, offset = scan_for_timestamp(driven.records(), timestamp)
        if partition == TXN and offset == -1:
            assert answer.offset in (-1, LAST_MARKER), f"asked for {timestamp}"
            continue
        assert (answer.offset, answer.timestamp) == (offset, found), f"asked for {timestamp}"


def check_ends(driven: DrivenLog, partition: TopicPartition, isolation: Isolation) -> None:
    """Earliest, latest, and the largest timestamp."""
    expected = answers_of(partition)[isolation.value]
    named = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "max_timestamp": MAX_TIMESTAMP}
    answers = {name: driven.offset_for(timestamp, isolation) for name, timestamp in named.items()}
    found = {name: [answer.offset, answer.timestamp] for name, answer in answers.items()}
    if partition in NOT_READABLE_IN_KAFKA:
        assert tuple(expected["max_timestamp"]) == NOT_READABLE_IN_KAFKA[partition]
        assert expected["max_timestamp"][0] < driven.log.log_start_offset
        assert found.pop("max_timestamp") == [-1, -1]
    if partition == TXN:
        assert found.pop("latest") == [LAST_MARKER + 1, -1]
        assert found.pop("max_timestamp")[0] == LAST_MARKER
    assert found == {name: expected[name] for name in found}


@STATES
@EACH
def test_indexes_rebuilt_from_the_log_are_kafkas_byte_for_byte(tmp_path: Path, state: str, partition: TopicPartition) -> None:
    driven = opened(tmp_path, state, partition)
    expected = segment_files(clean_files(partition))
    for segment in driven.log.segments:
        for index in segment.indexes:
            Path(index.path).unlink(missing_ok=True)
        rebuild = scan_segment(driven.fs, segment, LeaderEpochs(), ProducerState(segment.base_offset))
        drive(driven.fs, rebuild.put_in_place())
    assert segment_files(files(Path(driven.log.directory))) == expected


@EACH
def test_a_clean_open_and_close_leaves_every_file_as_it_was(tmp_path: Path, partition: TopicPartition) -> None:
    """But for what the server keeps for itself where it adopts aborted transactions, or records that were deleted."""
    driven = opened(tmp_path, "clean", partition)
    driven.close()
    found = files(Path(driven.log.directory))
    assert (found.pop("derived.json", None) is not None) is (partition.topic != "empty"), "its absence says that it was lost"
    assert found == clean_files(partition)


@pytest.mark.parametrize("with_recovery_point", [False, True], ids=["scan all", "from the checkpoint"])
@EACH
def test_an_unclean_open_and_close_leaves_kafkas_files(
    tmp_path: Path, partition: TopicPartition, with_recovery_point: bool
) -> None:
    driven = opened(tmp_path, "unclean", partition, with_recovery_point=with_recovery_point)
    driven.close()
    assert segment_files(files(Path(driven.log.directory))) == segment_files(clean_files(partition))


@EACH
def test_appends_go_on_where_kafka_ended(tmp_path: Path, partition: TopicPartition) -> None:
    driven = opened(tmp_path, "clean", partition)
    before = driven.records()
    latest = LAST_MARKER + 1 if partition == TXN else answers_of(partition)["read_uncommitted"]["latest"][0]
    for step in range(40):
        assert driven.append(batch(START_MS + step, key=b"key")).base_offset == latest + step
    driven.close()
    again = driven.reopen(was_clean=True)
    assert again.records()[: len(before)] == before
    assert again.log.log_end_offset == latest + 40
    assert driven.records() == again.records()


def test_checkpoints_are_encoded_as_kafka_does() -> None:
    assert len(ALL) == len({str(partition) for partition in ALL}) >= 17
    for path in [*GOLDEN.glob("*/*-checkpoint")]:
        data = path.read_bytes()
        offsets = checkpoints.decode_offsets(str(path), data)
        assert offsets
        assert sorted(checkpoints.encode_offsets(offsets).splitlines(keepends=True)) == sorted(data.splitlines(keepends=True))
        assert checkpoints.encode_offsets(offsets).splitlines()[:2] == data.splitlines()[:2]
    for path in [*GOLDEN.glob(f"*/*/{LEADER_EPOCH_FILE}")]:
        epochs = decode_leader_epochs(str(path), path.read_bytes())
        assert epochs.latest_epoch is not None
        assert epochs.encode() == path.read_bytes()
    for path in [*GOLDEN.glob(f"*/*/{checkpoints.PARTITION_METADATA_FILE}")]:
        data = path.read_bytes()
        assert checkpoints.encode_partition_metadata(checkpoints.decode_partition_metadata(str(path), data)) == data
    data = (GOLDEN / "clean" / checkpoints.CLEAN_SHUTDOWN_FILE).read_bytes()
    epoch = checkpoints.decode_clean_shutdown(data)
    assert epoch is not None
    assert checkpoints.encode_clean_shutdown(epoch) == data
    assert not (GOLDEN / "unclean" / checkpoints.CLEAN_SHUTDOWN_FILE).exists()


@STATES
def test_meta_properties_are_encoded_as_kafka_does(state: str) -> None:
    data = (GOLDEN / state / checkpoints.META_PROPERTIES_FILE).read_bytes()
    fields = checkpoints.decode_meta_properties(checkpoints.META_PROPERTIES_FILE, data)
    ours = checkpoints.encode_meta_properties(
        cluster_id=fields["cluster.id"],
        node_id=int(fields["node.id"]),
        directory_id=checkpoints.decode_uuid(fields["directory.id"]),
    )
    kafkas_lines, our_lines = data.splitlines(keepends=True), ours.splitlines(keepends=True)
    assert our_lines[0] == kafkas_lines[0] == b"#\n"
    date = re.compile(rb"#[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d UTC \d{4}\n")
    assert date.fullmatch(kafkas_lines[1])
    assert date.fullmatch(our_lines[1])
    assert sorted(our_lines[2:]) == sorted(kafkas_lines[2:])


def last_of_each_key(records: list[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


@STATES
def test_the_cleaner_checkpoint_of_kafka_is_read(state: str) -> None:
    assert read_cleaner_offsets(OsFileSystem(), str(GOLDEN / state)) == {COMPACTED: 894}
    assert (GOLDEN / state / CLEANER_OFFSET_FILE).read_bytes() == b"0\n1\ncompacted 0 894\n"


@STATES
@pytest.mark.parametrize("checkpoint", [894, None])
def test_a_log_that_kafka_compacted_is_compacted_again(tmp_path: Path, state: str, checkpoint: int | None) -> None:
    driven = opened(tmp_path, state, COMPACTED, cleanup_policy=("compact",))
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
    driven = opened(tmp_path, state, TXN, cleanup_policy=("compact",))
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
