from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest
from triolog.server.storage.disk.paths import base_offset_of

from tests.kafka.written_directory import write_directory
from tests.kafka.written_logs import WRITERS, append_mixed, files_of, open_new
from tests.support.kafka_jars import KafkaCalls, Outcome

COMPLAINTS: Final = re.compile(r"isvalid: false|invalid bytes at the end|Ignoring unknown file|Exception")
NOT_CONSECUTIVE: Final = re.compile(r"^Non-consecutive offsets in |^  -?\d+ is followed by \d+$")
BEGINS_ABOVE_0: Final = re.compile(
    r"^Non-consecutive offsets in .*/(\d{20})\.log\n  -1 is followed by (\d+)\n", flags=re.MULTILINE
)
"""What Kafka 4.3 says of every segment but a log's first, its own too."""
RECORD_LINE: Final = re.compile(r"^\| offset: \d+ .*(?:CreateTime|LogAppendTime): ", flags=re.MULTILINE)


def problems(outcome: Outcome) -> list[str]:
    """What DumpLogSegments complains about; [] when nothing is wrong."""
    errors = BEGINS_ABOVE_0.sub(lambda found: "" if int(found[1]) == int(found[2]) else found[0], outcome.stderr)
    found = [line for line in outcome.stdout.splitlines() if COMPLAINTS.search(line)] + errors.splitlines()
    return found or ([] if outcome.exit_code == 0 else [f"exit code {outcome.exit_code}"])


ROLLED: Final = {
    "rolled-by-size": range(4, 100),
    "rolled-by-time": range(10, 100),
    "rolled-by-full-offset-index": range(5, 100),
    "rolled-by-full-time-index": range(5, 100),
    "rolled-by-offset-overflow": range(2, 3),
}
"""How many segments there are then."""


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_wrong_in_what_a_writer_leaves(kafka: KafkaCalls, name: str, tmp_path: Path) -> None:
    """After an unclean stop the loader scans every batch and rebuilds the indexes: nothing is cut off."""
    directory = tmp_path / f"{name}-0"
    records = WRITERS[name](directory)
    logs, indexes = files_of(directory, ".log"), files_of(directory, ".index", ".timeindex")
    assert len(logs) in ROLLED.get(name, range(1, 100))
    assert base_offset_of(logs[0].name) == 0
    outcome = kafka.dump(logs, "--deep-iteration")
    if name == "rolled-by-offset-overflow":
        assert problems(outcome)[1:] == ["  0 is followed by 2147483646"]  # the gap that the test made
    else:
        assert problems(outcome) == []
    assert len(RECORD_LINE.findall(outcome.stdout)) == records

    assert problems(kafka.dump(indexes, "--verify-index-only")) == []
    outcome = kafka.dump(indexes, "--index-sanity-check")
    assert problems(outcome) == []
    assert len(re.findall(r" passed sanity check\.$| is empty\.$", outcome.stdout, flags=re.MULTILINE)) == len(indexes)
    if files := files_of(directory, ".snapshot", ".txnindex"):
        assert problems(kafka.dump(files)) == []

    sizes = {path.name: path.stat().st_size for path in logs}
    for was_clean in (True, False):
        copy = Path(shutil.copytree(directory, tmp_path / str(was_clean) / directory.name))
        assert kafka.load(copy, was_clean=was_clean).records == records
        assert {path.name: path.stat().st_size for path in files_of(copy, ".log")} == sizes


def test_a_log_that_was_killed_loads_as_a_whole(kafka: KafkaCalls, tmp_path: Path) -> None:
    """Preallocated indexes end in zeros then, which the recovery takes away."""
    log = open_new(tmp_path / "killed-0", segment_bytes="30000")
    records = append_mixed(log, 60)
    assert kafka.load(tmp_path / "killed-0", was_clean=False).records == records


def test_a_log_from_which_damage_was_taken_out_loads_as_what_is_left(kafka: KafkaCalls, tmp_path: Path) -> None:
    """The gap looks like one that compaction left; the side file with the damaged bytes is passed over."""
    log = open_new(tmp_path / "damaged-0", segment_bytes="30000")
    records = append_mixed(log, 60)
    damage(files_of(tmp_path / "damaged-0", ".log")[0], 100)
    recovered = log.reopen(was_clean=False)
    recovered.close()
    [gap] = recovered.log.snapshot().gaps
    left = records - (gap.end_offset - gap.start_offset)
    outcome = kafka.dump(files_of(tmp_path / "damaged-0"), "--deep-iteration", "--verify-index-only")
    assert without_gaps(outcome) == []
    for was_clean in (True, False):
        assert kafka.load(tmp_path / "damaged-0", was_clean=was_clean).records == left


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transactions, idempotent producers, compaction, a trimmed start, coordinators: written by a broker, stopped in order."""
    path = tmp_path_factory.mktemp("written") / "triolog"
    write_directory(path)
    return path


def without_gaps(outcome: Outcome) -> list[str]:
    """Complaints except those about offsets that compaction took out."""
    return [line for line in problems(outcome) if not NOT_CONSECUTIVE.search(line)]


def test_nothing_is_wrong_in_the_directory_of_a_broker(kafka: KafkaCalls, directory: Path) -> None:
    for path in sorted(path for path in directory.iterdir() if path.is_dir()):
        outcome = kafka.dump(files_of(path), "--deep-iteration", "--verify-index-only")
        is_compacted = path.name.startswith(("compacted-", "__"))
        assert (without_gaps(outcome) if is_compacted else problems(outcome)) == [], path.name
        assert problems(kafka.dump(files_of(path, ".index", ".timeindex"), "--index-sanity-check")) == [], path.name
        if path.name == "compacted-0":
            assert problems(outcome) != [], "what is passed over is there"


def test_transaction_indexes_have_every_aborted_transaction(kafka: KafkaCalls, directory: Path) -> None:
    """Those that Kafka's classes read in the index are those that have an abort marker in the log."""
    path = directory / "transactions-0"
    listed = re.findall(r"producerId: \d+ firstOffset: \d+ lastOffset: (\d+)", kafka.dump(files_of(path, ".txnindex")).ok())
    log = kafka.dump(files_of(path, ".log"), "--deep-iteration").ok()
    aborts = re.findall(r"\| offset: (\d+) .*endTxnMarker: ABORT", log)
    assert listed == aborts
    assert len(aborts) > 5


def test_snapshots_have_every_producer(kafka: KafkaCalls, directory: Path) -> None:
    newest = files_of(directory / "idempotent-0", ".snapshot")[-1]
    producers = re.findall(r"producerId: (\d+) producerEpoch: 0 .*lastSequence: 4", kafka.dump([newest]).ok())
    assert len(producers) == 10


def test_the_broker_loads_transactions_and_compacted_logs(kafka: KafkaCalls, directory: Path, tmp_path: Path) -> None:
    """As above, with the state of producers and the transaction index rebuilt from the log."""
    for name in ("transactions-0", "compacted-0", "idempotent-0"):
        copy = Path(shutil.copytree(directory / name, tmp_path / name))
        by_snapshot, by_scan = (kafka.load(copy, was_clean=was_clean) for was_clean in (True, False))
        assert by_snapshot == by_scan
        assert by_scan.records > 0


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_in_a_record_or_an_index_entry_is_found(kafka: KafkaCalls, tmp_path: Path) -> None:
    WRITERS["codec-none"](tmp_path / "log-0")
    [index, *_], [log, *_] = files_of(tmp_path / "log-0", ".index"), files_of(tmp_path / "log-0", ".log")
    damage(index, 7)
    assert problems(kafka.dump([index], "--verify-index-only")) != []
    damage(log, 100)
    assert problems(kafka.dump([log])) != []
