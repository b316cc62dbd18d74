from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from click.testing import Result
from triolog.protocol.records.builder import build_batch
from triolog.server.storage.producers.producer_cursor import BatchMetadata, ProducerEntry
from triolog.server.storage.producers.producer_snapshots import crc_of, encode_earlier, encode_snapshot
from triolog.tools.cli.dump.command import kind_of
from triolog.tools.cli.terminal.rows import read_content

from tests.support.golden import GOLDEN
from tests.support.record_batches import patched

from ..conftest import call

CLEAN: Final = GOLDEN / "clean"
EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
PARTITIONS: Final = sorted(path.name for path in CLEAN.iterdir() if path.is_dir())
FIRST: Final = "00000000000000000000"


def dump(*arguments: object) -> Result:
    return call("dump", "--timezone", "UTC", *arguments)


def findings(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump("--json", *arguments).stdout.splitlines()]


def failures(*arguments: object) -> dict[str, str]:
    """What failed -> why; the exit code must say the same."""
    result = dump("--json", "--checks", *arguments)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    failed = {entry["check"]: entry["failure"] for entry in found if entry["type"] == "check" and not entry["ok"]}
    assert result.exit_code == bool(failed)
    assert all(entry["ok"] == (not entry["failed"]) for entry in found if entry["type"] == "verdict")
    return failed


@pytest.fixture
def times(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CLEAN / "times-0", tmp_path / "times-0"))


def rewrite(path: Path, position: int, data: bytes) -> Path:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)
    return path


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def batch_rows(path: Path) -> list[dict[str, Any]]:
    return [entry for entry in findings(path) if entry["type"] == "batch"]


def test_every_check_of_kafkas_own_files_is_ok() -> None:
    for state in ("clean", "unclean"):
        assert failures(GOLDEN / state) == {}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_record_is_printed_as_kafka_read_it(partition: str) -> None:
    topic, _, number = partition.rpartition("-")
    expected = EXPECTED[topic]["partitions"][number]["records"]
    printed = []
    is_control = False
    for entry in findings("--records", CLEAN / partition):
        if entry["type"] == "batch":
            is_control = "control" in entry["flags"]
        elif entry["type"] == "record" and not is_control:
            key, value = read_content(entry["key"]), read_content(entry["value"])
            headers = tuple((name, read_content(content)) for name, content in entry["headers"])
            printed.append((entry["offset"], entry["timestamp"], key, value, headers))
    first = expected[0][0] if expected else 2**63  # below the log start offset Kafka read nothing
    assert [record for record in printed if record[0] >= first] == [
        (offset, timestamp, decoded(key), decoded(value), tuple((name, decoded(content)) for name, content in headers))
        for offset, _, timestamp, key, value, headers in expected
    ]


def test_a_batch_is_shown_with_all_of_its_header() -> None:
    (batch, *_) = batch_rows(CLEAN / "codec-zstd-0" / f"{FIRST}.log")
    for name in ("bytes", "base_timestamp", "max_timestamp"):
        assert batch.pop(name) > 0
    where = {"file": str(CLEAN / "codec-zstd-0" / f"{FIRST}.log"), "type": "batch", "position": 0, "base_offset": 0}
    records = {"last_offset": batch["records_count"] - 1, "records_count": batch["records_count"], "codec": "zstd"}
    producer = {"leader_epoch": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "flags": []}
    assert batch == {**where, **records, **producer, "crc_ok": True, "structure_ok": True}


def test_flags_and_producers_are_shown_and_markers_in_words() -> None:
    batches = [entry for entry in findings(CLEAN / "txn-0") if entry["type"] == "batch"]
    assert {tuple(batch["flags"]) for batch in batches} >= {("transactional",), ("transactional", "control")}
    assert all(batch["producer_id"] >= 0 for batch in batches if batch["flags"])
    (appended, *_) = batch_rows(CLEAN / "append-time-0" / f"{FIRST}.log")
    assert appended["flags"] == ["append-time"]
    text = dump("--records", CLEAN / "txn-0" / "00000000000000000135.log").stdout
    assert "[ABORT marker of producer 2 epoch 0, coordinator epoch 0]" in text
    assert "[COMMIT marker of producer 2 epoch 0, coordinator epoch 0]" in text


def test_people_get_columns_and_a_line_for_each_check() -> None:
    text = dump("--records", CLEAN / "codec-gzip-0" / f"{FIRST}.log").stdout
    lines = text.splitlines()
    assert lines[0] == str(CLEAN / "codec-gzip-0" / f"{FIRST}.log")
    assert lines[1] == "  name: ok (base offset 0)"
    assert lines[2].split()[:4] == ["position", "offsets", "records", "bytes"]
    assert lines[3].split()[4] == "gzip"
    assert "  CRC: ok (" in text
    assert "FAILED" not in text
    assert "\x1b" not in text


def test_index_entries_are_shown_with_absolute_offsets(times: Path) -> None:
    path = times / "00000000000000000096.index"
    raw = path.read_bytes()
    entries = [entry for entry in findings(path) if entry["type"] == "offset_entry"]
    assert len(entries) == len(raw) // 8
    assert entries[0]["offset"] == 96 + int.from_bytes(raw[:4], "big")
    assert entries[0]["position"] == int.from_bytes(raw[4:8], "big")
    raw = path.with_suffix(".timeindex").read_bytes()
    entries = [entry for entry in findings(path.with_suffix(".timeindex")) if entry["type"] == "time_entry"]
    assert entries[-1]["timestamp"] == int.from_bytes(raw[-12:-4], "big")
    assert entries[-1]["offset"] == 96 + int.from_bytes(raw[-4:], "big")


def test_text_files_are_shown_line_by_line(tmp_path: Path) -> None:
    text = dump(CLEAN / "recovery-point-offset-checkpoint", CLEAN / "meta.properties").stdout
    assert "  times-0 1200\n" in text
    assert "  version = 1\n" in text
    assert "  epoch 0 from offset 0\n" in dump(CLEAN / "times-0" / "leader-epoch-checkpoint").stdout
    assert "  topic id " in dump(CLEAN / "times-0" / "partition.metadata").stdout
    path = tmp_path / "quarantine-checkpoint"
    path.write_text(f"0\n2\n3 5 {FIRST}.log.corrupt-70\n9 10 -\n")
    assert [entry["text"] for entry in findings(path) if entry["type"] == "line"] == [
        f"offsets 3 to 4 are missing; the damaged bytes are in {FIRST}.log.corrupt-70",
        "offsets 9 to 9 are missing; nothing was left of them",
    ]


def test_a_wrong_crc_fails_and_the_batches_behind_it_are_read(times: Path) -> None:
    log = times / f"{FIRST}.log"
    before = batch_rows(log)
    second = before[1]
    rewrite(log, second["position"] + 70, b"\xee")
    failed = failures(log)
    assert failed.keys() == {"CRC"}
    assert failed["CRC"].startswith(f"position {second['position']}: batch at offset {second['base_offset']} carries CRC ")
    after = batch_rows(log)
    assert [row["position"] for row in after] == [row["position"] for row in before]
    assert [row["crc_ok"] for row in after[:3]] == [True, False, True]
    assert after[1]["structure_ok"] is None
    text = dump(log)
    assert text.exit_code == 1
    assert "  CRC: FAILED (" in text.stdout
    assert "  1 check FAILED" in text.stdout
    for row in before:
        rewrite(log, row["position"] + 65, b"\xee\xee")
    failure = failures(log)["CRC"]
    assert failure.count("position ") == 3, "of many only some are told"
    assert failure.endswith(f", and {len(before) - 3} more")


def test_a_torn_tail_and_garbage_fail_and_say_where_recovery_cuts(times: Path) -> None:
    log = times / f"{FIRST}.log"
    rows = batch_rows(log)
    log.write_bytes(log.read_bytes()[:-10])
    failed = failures(log)
    assert failed.keys() == {"batches"}
    assert f"from position {rows[-1]['position']} on are not a whole batch" in failed["batches"]
    rewrite(log, rows[1]["position"] + 16, b"\x07")
    failed = failures(log)
    assert failed.keys() == {"batches"}
    assert f"no record batch at position {rows[1]['position']}: magic 7" in failed["batches"]


def test_what_was_not_closed_is_recognised(times: Path) -> None:
    path = sorted((GOLDEN / "unclean" / "times-0").glob("*.timeindex"))[-1]
    checks = {entry["check"]: entry["note"] for entry in findings("--checks", path) if entry["type"] == "check"}
    assert "of zeros: preallocated, not closed" in checks["size"]
    assert "the segment is not closed" in checks["closing entry"]
    log = times / f"{FIRST}.log"
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(200_000))
    assert failures(log) == {}
    assert f"{size:,} bytes, then 200,000 zeros: preallocated" in dump(log).stdout


@pytest.mark.parametrize(
    ("fields", "check", "words"),
    [
        ({"base_offset": 0}, "offsets", "0 to {last_delta} cannot follow"),
        ({"base_offset": 2**40}, "offsets", "is more than 2147483647 above 0"),
        ({"max_timestamp": 5}, "timestamps", "the header has 5, the largest of the records is"),
        ({"partition_leader_epoch": 9}, "leader epochs", "0 follows 9"),
        ({"records_count": 1}, "records", "1 records take"),
        ({"attributes": 7}, "records", "codec 7"),
    ],
)
def test_a_header_that_cannot_be_true_fails(times: Path, fields: dict[str, int], check: str, words: str) -> None:
    log = times / f"{FIRST}.log"
    second = batch_rows(log)[1]
    start, stop = second["position"], second["position"] + second["bytes"]
    rewrite(log, start, patched(log.read_bytes()[start:stop], **fields))
    assert words.format(last_delta=second["last_offset"] - second["base_offset"]) in failures(log)[check]


@pytest.mark.parametrize(("suffix", "size"), [(".index", 8), (".timeindex", 12)])
def test_every_damage_of_an_index_fails(times: Path, suffix: str, size: int) -> None:
    path = times / f"{FIRST}{suffix}"
    data = path.read_bytes()
    first, second, *others = [data[start : start + size] for start in range(0, len(data), size)]
    key, value = second[: size - 4], second[size - 4 :]
    for check, entries in (
        ("entries", [first, (int.from_bytes(key, "big") + 1).to_bytes(size - 4, "big") + value, *others]),
        ("entries", [first, key + (int.from_bytes(value, "big") + 1).to_bytes(4, "big"), *others]),
        ("order", [second, first, *others]),
        ("order", [first, first, *others]),
        ("size", [first, second, *others, b"\x01"]),
    ):
        path.write_bytes(b"".join(entries))
        assert check in failures(path)


def test_an_entry_behind_the_log_and_a_closing_entry_that_lacks_fail(times: Path) -> None:
    path = sorted(times.glob("*.timeindex"))[1]
    path.write_bytes(path.read_bytes()[:-12])
    failed = failures(path)
    assert failed.keys() == {"closing entry"}
    assert "the largest of the log is" in failed["closing entry"]
    log = times / f"{FIRST}.log"
    log.write_bytes(log.read_bytes()[: batch_rows(log)[1]["position"]])
    assert "after the end of the log" in failures(log.with_suffix(".index"))["entries"]
    assert "the log's largest is" in failures(log.with_suffix(".timeindex"))["entries"]
    rewrite(log, 16, b"\x07")
    found = findings("--checks", log.with_suffix(".index"))
    (note,) = [entry["note"] for entry in found if entry.get("check") == "log"]
    assert "is read up to its first damage" in note


def test_a_file_without_its_log_or_its_name_fails(times: Path) -> None:
    (times / f"{FIRST}.log").unlink()
    for suffix in (".log", ".index", ".timeindex"):
        if suffix != ".log":
            assert "does not exist, so the entries cannot be checked" in failures(times / f"{FIRST}{suffix}")["log"]
        (times / f"7{suffix}").touch()
        assert failures(times / f"7{suffix}")["name"] == "the name does not start with 20 digits and a dot"


def test_an_unreadable_small_file_fails(tmp_path: Path) -> None:
    snapshot = bytearray((CLEAN / "txn-0" / "00000000000000000205.snapshot").read_bytes())
    snapshot[20] = 0x77
    for name, content, check, words in (
        ("recovery-point-offset-checkpoint", b"0\n2\nt 0 5\n", "readable", "its count is 2"),
        ("replication-offset-checkpoint", b"1\n0\n", "readable", "has version '1'"),
        ("log-start-offset-checkpoint", b"0\n1\nt 0 x\n", "readable", "'x' is not a whole number"),
        ("leader-epoch-checkpoint", b"0\n1\n0\n", "readable", "has 1 fields"),
        ("leader-epoch-checkpoint", b"0\n2\n1 50\n0 60\n", "order", "epoch 0 from offset 60 follows epoch 1 from offset 50"),
        ("partition.metadata", b"version: 0\n", "readable", "is not `version: 0`"),
        ("meta.properties", b"version=1\n", "readable", "lacks cluster.id"),
        ("topics.json", b"{}", "readable", "cannot read"),
        ("producer-id-block", b"0\n0\n", "readable", "first free producer id"),
        ("topics-in-creation.json", b"{}", "readable", "cannot read"),
        (f"{FIRST}.snapshot", snapshot, "readable", "carries CRC"),
        (f"{FIRST}.txnindex", b"\0\1" + bytes(32), "size", ""),
        (f"{FIRST}.txnindex", bytes(33), "size", ""),
    ):
        (tmp_path / name).write_bytes(content)
        assert words in failures(tmp_path / name)[check]


def test_a_transaction_index_and_a_snapshot_are_shown_entry_by_entry() -> None:
    path = CLEAN / "txn-0" / "00000000000000000135.txnindex"
    found = [entry for entry in findings(path) if entry["type"] == "aborted_txn"]
    aborted = [(entry["producer_id"], entry["first_offset"], entry["last_offset"]) for entry in found]
    assert aborted == [(2, 164, 165), (1, 174, 183), (1, 195, 204)]
    assert "last stable offset" in dump(path).stdout
    path = CLEAN / "txn-0" / "00000000000000000205.snapshot"
    found = [entry for entry in findings(path) if entry["type"] == "producer"]
    producers = [(entry["producer_id"], entry["last_sequence"], entry["last_offset"]) for entry in found]
    assert producers == [(0, 38, 172), (1, -1, -1), (2, 46, 193)]
    assert [entry["current_txn_first_offset"] for entry in found] == [None] * 3
    assert "3 producers at offset 205" in dump(path).stdout


def entry(producer_id: int, *last_offsets: int) -> ProducerEntry:
    batches = tuple(BatchMetadata(offset + 1, offset, 1, 1_000) for offset in last_offsets)
    return ProducerEntry(producer_id, 0, -1, 1_000, None, batches)


def test_the_batches_beside_a_snapshot_are_shown_and_held_against_it(tmp_path: Path) -> None:
    entries = [entry(4, 1, 3, 9), entry(5, 11)]
    snapshot, path = tmp_path / f"{FIRST}.snapshot", tmp_path / f"{FIRST}.batches"
    snapshot.write_bytes(encode_snapshot(entries))
    path.write_bytes(encode_earlier(entries, crc_of(snapshot.read_bytes())))
    found = [found for found in findings(path) if found["type"] == "earlier_batch"]
    assert [(each["producer_id"], each["last_sequence"], each["last_offset"]) for each in found] == [(4, 2, 1), (4, 4, 3)]
    assert "2 batches of 1 producer" in dump(path).stdout
    snapshot.write_bytes(encode_snapshot(entries[:1]))
    assert "it belongs to one with CRC" in failures(path)["snapshot"]
    snapshot.unlink()
    assert "does not exist" in failures(path)["snapshot"]
    path.write_bytes(path.read_bytes()[:-1])
    assert "carries CRC" in failures(path)["readable"]


def test_only_files_of_a_log_are_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path, words in ((tmp_path / "notes.txt", "is not a file that dump knows"), (tmp_path, "holds no file of a log")):
        result = dump(path)
        assert result.exit_code == 2
        assert words in result.stderr
    assert dump(tmp_path / "missing").exit_code == 2
    kinds = [kind_of(name) for name in ("a/1.log", "x.timeindex", "topics.json", "y")]
    assert kinds == [".log", ".timeindex", "topics.json", None]


def test_a_running_broker_is_warned_about_and_its_files_are_dumped() -> None:
    with triolog.blocking.open(config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        broker.create_topic("t")
        for number in range(3):
            broker.append("t", [(1000 + number, b"k", b"v", ())])
        result = dump("--records", broker.path)
        assert result.exit_code == 0, result.stdout
        (warning,) = result.stderr.splitlines()
        assert warning.startswith(f"warning: {broker.path} is locked by triolog, process ")
        assert "t: id " in result.stdout
        assert "3 batches, 3 records" in result.stdout


def test_a_stopped_log_of_ours_has_no_failure_and_no_warning(tmp_path: Path) -> None:
    settings = {"retention.ms": "-1", "segment.bytes": "4000", "index.interval.bytes": "100"}
    with triolog.blocking.open(tmp_path / "data", config=settings, durability="os", native="127.0.0.1:0") as broker:
        broker.create_topic("t", 2)
        for number in range(60):
            record = (1000 + number * 7 % 50, b"k", b"v" * 200, ())
            broker.append("t", [record, record], partition=0)
            broker.append("t", build_batch([record]) + build_batch([record, record]), partition=1)
    result = dump(tmp_path / "data")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "FAILED" not in result.stdout
    assert result.stdout.count(".log\n") > 6
