from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import triolog
from click.testing import Result
from triolog.server.storage.directory.log_directory import DirectoryLock
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, decode_topics, encode_topics
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE
from triolog.tools.cli.terminal.output import size_text

from tests.support.damaged_batches import flip
from tests.support.drawings import Drawing
from tests.support.stopped_logs import CONFIGS, TOPIC, TOPIC_ID, StoppedLogs, write_stopped_logs
from tests.tools.cli.conftest import call, json_lines


def verify(*arguments: object) -> Result:
    return call("verify", *arguments)


def damage_first_log(logs: StoppedLogs) -> Path:
    log = sorted(logs.partition().glob("*.log"))[0]
    flip(log, 80)
    return log


def contents(logs: StoppedLogs) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in logs.path.rglob("*") if path.is_file() and path.name != ".lock"}


@contextmanager
def held(logs: StoppedLogs) -> Iterator[None]:
    """As a running server holds the directory."""
    lock = DirectoryLock.acquire(str(logs.path))
    try:
        yield
    finally:
        lock.release()


def test_a_clean_directory_ends_with_0_and_a_line_for_each_partition(logs: StoppedLogs) -> None:
    result = verify(logs.path)
    assert (result.exit_code, result.stderr) == (0, "")
    first, second, last = result.stdout.splitlines()
    assert first.startswith("ok      flights-0: ")
    assert second.startswith("ok      flights-1: ")
    assert last.endswith("of log: no damage")
    (logs.partition() / "evil\x1b[2J").touch()
    result = verify(logs.path)
    assert "\x1b" not in result.stdout, "nor does a name reach the terminal as it is"
    assert "evil\\x1b[2J" in result.stdout


def test_damage_ends_with_1_and_names_file_position_size_and_offsets(logs: StoppedLogs) -> None:
    log = damage_first_log(logs)
    result = verify(logs.path)
    assert result.exit_code == 1
    damage = next(line for line in result.stdout.splitlines() if line.startswith("damage"))
    assert damage.startswith(f"damage  flights-0/{log.name} (")
    assert "bytes at position 0, offset" in damage
    assert "carries CRC" in damage
    assert "FAILED  flights-0: " in result.stdout
    assert "ok      flights-1: " in result.stdout
    assert "triolog repair --dry-run" in result.stdout.splitlines()[-1]


def test_json_lines_are_findings_partitions_and_a_verdict_and_nothing_is_changed(logs: StoppedLogs) -> None:
    damage_first_log(logs)
    before = contents(logs)
    found = json_lines("verify", "--json", logs.path)
    finding = next(line for line in found if line["type"] == "finding")
    assert (finding["severity"], finding["check"], finding["position"]) == ("damage", "batch", 0)
    partitions = [line for line in found if line["type"] == "partition"]
    assert [(line["partition"], line["ok"]) for line in partitions] == [(0, False), (1, True)]
    assert found[-1]["type"] == "verdict"
    assert found[-1]["ok"] is False
    assert found[-1]["damages"] == sum(line["type"] == "finding" and line["severity"] == "damage" for line in found)
    assert contents(logs) == before


def test_a_partition_and_a_topic_can_be_named(logs: StoppedLogs) -> None:
    damage_first_log(logs)
    assert verify(logs.partition(1)).exit_code == 0
    assert verify(logs.path, "--topic", "flights").exit_code == 1
    missing = verify(logs.path, "--topic", "trains")
    assert missing.exit_code == 3
    assert "has no partition of topic 'trains'" in missing.stderr


@pytest.mark.parametrize("command", ["verify {0}", "verify {0}/flights-1", "repair {0}", "repair {0} --dry-run", "reindex {0}"])
def test_a_directory_that_a_server_holds_is_refused_with_its_process(logs: StoppedLogs, command: str) -> None:
    damage_first_log(logs)
    before = contents(logs)
    with held(logs):
        result = call(*command.format(logs.path).split())
    assert result.exit_code == 3
    assert f"another server (triolog, process {os.getpid()}) holds" in result.stderr
    assert contents(logs) == before


def test_dry_run_then_repair_then_nothing(logs: StoppedLogs) -> None:
    log = damage_first_log(logs)
    damaged = log.read_bytes()
    planned = call("repair", logs.path, "--dry-run")
    assert planned.exit_code == 1
    assert planned.stdout.splitlines()[-1].endswith("planned; nothing was changed")
    assert log.read_bytes() == damaged
    done = call("repair", logs.path)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:-1] == planned.stdout.splitlines()[:-1]
    assert done.stdout.splitlines()[0].startswith(f"quarantine  flights-0/{log.name} (offsets 0 to ")
    assert done.stdout.splitlines()[-1].endswith("no byte deleted; checked again: no damage is left")
    assert call("verify", logs.path).exit_code == 0
    assert call("repair", logs.path).stdout == "nothing is damaged\n"


def test_what_is_left_ends_with_1_and_is_named(logs: StoppedLogs) -> None:
    (logs.path / "topics.json").write_bytes(b"{")
    result = call("repair", logs.path)
    assert result.exit_code == 1
    assert "left        topics.json: topics: " in result.stdout
    assert result.stdout.splitlines()[-1].endswith("1 damage left")


def test_json_lines_are_actions_and_a_verdict(logs: StoppedLogs) -> None:
    damage_first_log(logs)
    found = json_lines("repair", "--json", logs.path)
    assert [found[0][name] for name in ("type", "kind", "first_offset")] == ["action", "quarantine", 0]
    verdict = {"type": "verdict", "ok": True, "dry_run": False, "damages": 1, "actions": len(found) - 1, "left": 0}
    assert found[-1] == verdict


def test_reindex_makes_every_index_as_it_was(logs: StoppedLogs) -> None:
    indexes = list(logs.path.rglob("*index"))
    before = {path: path.read_bytes() for path in indexes}
    for path in indexes:
        path.unlink()
    result = call("reindex", logs.path)
    assert result.exit_code == 0, result.stdout
    assert {path: path.read_bytes() for path in logs.path.rglob("*index")} == before
    for number in range(2):
        sorted(logs.partition(number).glob("*.index"))[0].unlink()
    assert call("reindex", logs.partition(1)).exit_code == 0
    assert call("verify", logs.partition(1)).exit_code == 0
    assert call("verify", logs.partition(0)).exit_code == 1, "the others are left"


def test_reindex_leaves_a_damaged_segment_and_names_it(logs: StoppedLogs) -> None:
    log = damage_first_log(logs)
    result = call("reindex", logs.path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith(f"left  flights-0/{log.name}: the log is damaged at position 0: ")
    (failed,) = [line for line in json_lines("reindex", "--json", logs.path) if line.get("failure")]
    assert failed["file"] == f"flights-0/{log.name}"


def compacted_policy(logs: StoppedLogs) -> None:
    path = logs.path / TOPICS_FILE
    assert decode_topics("", path.read_bytes())[0] == 1
    configs = {**CONFIGS, "cleanup.policy": "compact"}
    path.write_bytes(encode_topics(2, [Topic(name=TOPIC, topic_id=TOPIC_ID, partitions=2, configs=configs)]))


def offsets(logs: StoppedLogs, number: int, *, isolation: str = "read_committed") -> list[tuple[int, str | None]]:
    result = call("export", logs.partition(number), "--isolation", isolation)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["offset"], row["key"]) for row in rows]


def test_the_newest_record_of_each_key_stays(logs: StoppedLogs) -> None:
    compacted_policy(logs)
    before = [offsets(logs, number) for number in range(2)]
    result = call("compact", logs.path, "--topic", TOPIC, "--include-active")
    assert result.exit_code == 0, result.output
    assert "flights-0: " in result.stdout
    assert "records without a key dropped" in result.stdout
    for number in range(2):
        after = offsets(logs, number)
        assert set(after) <= set(before[number])
        assert len(after) < len(before[number])
        assert max(offset for offset, key in before[number] if key == "key") in {offset for offset, _ in after}
    assert call("verify", logs.path).exit_code == 0
    assert (logs.path / CLEAN_SHUTDOWN_FILE).exists()
    assert not list(logs.path.rglob("*.deleted"))
    again = json.loads(call("compact", logs.path, "--topic", TOPIC, "--include-active", "--json").stdout)
    assert [part["rounds"] for part in again["partitions"]] == [0, 0]
    assert all(part["bytes_before"] == part["bytes_after"] for part in again["partitions"])
    assert call("compact", logs.path, "--topic", "trains").exit_code == 3


def test_a_topic_that_is_not_compacted_is_refused_unless_forced(logs: StoppedLogs) -> None:
    before = offsets(logs, 0)
    result = call("compact", logs.path, "--topic", TOPIC)
    assert result.exit_code == 1
    assert "all records without a key would be lost" in result.stderr
    assert offsets(logs, 0) == before
    assert call("compact", logs.path, "--topic", TOPIC, "--force").exit_code == 0
    assert len(offsets(logs, 0)) < len(before)


CONFIG = {"retention.ms": "-1", "segment.bytes": "20000", "index.interval.bytes": "500"}


def test_a_backup_under_a_producer_has_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path / "data", config=CONFIG, native="127.0.0.1:0") as broker:
        broker.create_topic("readings", partitions=2)
        stop, acknowledged, warm = threading.Event(), [-1, -1], threading.Event()

        def produce() -> None:
            number = 0
            while not stop.is_set():
                partition = number % 2
                broker.append("readings", [f"{number}".encode() * 20], partition=partition)
                acknowledged[partition] = number
                number += 1
                if number == 400:
                    warm.set()

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            assert warm.wait(60)
            before = list(acknowledged)
            result = call("backup", tmp_path / "data", tmp_path / "copy", "--json")
        finally:
            stop.set()
            producer.join()
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["linked_bytes"] > 0
    assert call("verify", tmp_path / "copy").exit_code == 0
    with triolog.blocking.open(tmp_path / "copy", config=CONFIG, native="127.0.0.1:0") as copy:
        for partition in range(2):
            values: list[bytes | None] = []
            while records := copy.fetch("readings", offset=len(values), partition=partition):
                values += [record.value for record in records]
            numbers = range(partition, 2 * len(values) + partition, 2)
            assert values == [f"{number}".encode() * 20 for number in numbers]
            assert 2 * len(values) + partition - 2 >= before[partition]
    assert call("verify", tmp_path / "copy").exit_code == 0
    assert call("verify", tmp_path / "data").exit_code == 0


def test_it_says_what_was_linked_and_copied(tmp_path: Path) -> None:
    write_stopped_logs(tmp_path / "data", partitions=2)
    result = call("backup", tmp_path / "data", tmp_path / "copy")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"2 partitions in {tmp_path / 'copy'}: ")
    assert "hard links" in result.stdout
    again = call("backup", tmp_path / "data", tmp_path / "copy")
    assert again.exit_code == 3
    assert "exists and is not an empty directory" in again.stderr
    (tmp_path / "other" / "photos").mkdir(parents=True)
    assert call("backup", tmp_path / "missing", tmp_path / "another").exit_code == 2


def du(*arguments: object) -> Result:
    return call("du", *arguments)


def test_the_parts_are_what_the_system_says(logs: StoppedLogs) -> None:
    document = json.loads(du("--json", logs.path).stdout)
    files = [path for path in logs.path.rglob("*") if path.is_file()]
    parts = [*document["partitions"], document["beside_partitions"]]
    assert sum(part["logical_bytes"] for part in parts) == sum(path.stat().st_size for path in files)
    folders = [path for path in logs.path.rglob("*") if path.is_dir()]
    allocated = sum(path.stat().st_blocks * 512 for path in [*files, *folders])
    assert sum(part["allocated_bytes"] for part in parts) == allocated


def test_a_segment_is_as_old_as_its_largest_timestamp_and_a_sparse_index_takes_less_than_its_length(logs: StoppedLogs) -> None:
    segments = json.loads(du("--json", logs.path).stdout)["partitions"][0]["segments"]
    (records,) = (each for partition, each in logs.records.items() if partition.partition == 0)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        end = 2**63 if following is None else following["base_offset"]
        mine = [record.timestamp for record in records if segment["base_offset"] <= record.offset < end]
        assert segment["largest_timestamp"] >= max(mine)
    index = sorted(logs.partition().glob("*.timeindex"))[-1]
    index.write_bytes(index.read_bytes() + bytes(12 * 1000))
    sparse = sorted(logs.partition().glob("*.index"))[-1]
    os.truncate(sparse, 10 << 20)
    last = json.loads(du("--json", logs.path).stdout)["partitions"][0]["segments"][-1]
    assert last["largest_timestamp"] == segments[-1]["largest_timestamp"], "zeros are no age"
    assert last["indexes"]["logical_bytes"] > 10 << 20
    assert last["indexes"]["allocated_bytes"] < 1 << 20


def test_a_view_has_bars_and_a_sum_also_under_a_running_server(logs: StoppedLogs, tmp_path: Path) -> None:
    with held(logs):
        for view, first in (("topic", "flights (2 partitions)"), ("partition", "flights-0"), ("age", "up to 1 hour")):
            text = du(logs.path, "--by", view).stdout
            assert first in text
            assert "█" in text
            assert text.splitlines()[-1].startswith("2 partitions, ")
        text = du(logs.path, "--by", "segment").stdout
        assert all(f"flights-1/{log.stem}" in text for log in logs.partition(1).glob("*.log"))
    assert du(tmp_path).exit_code == 3, "it is no log directory"
    (tmp_path / "other" / "flights-0").mkdir(parents=True)
    assert du(tmp_path / "other", "--by", "segment").stdout.splitlines()[-1].startswith("1 partition, 0 B of content")


def test_a_picture_has_the_bytes_of_the_view(logs: StoppedLogs, tmp_path: Path) -> None:
    path = tmp_path / "du.svg"
    document = json.loads(du("--json", logs.path).stdout)
    parts = [*document["partitions"], document["beside_partitions"]]
    size = size_text(sum(part["allocated_bytes"] for part in parts))
    for view, expected in (("topic", "flights-1"), ("partition", "flights-0"), ("segment", "flights-0/0"), ("age", "older")):
        said = du(logs.path, "--by", view, "--svg", path).stdout
        assert said == f"a picture of {path.stat().st_size:,} bytes in {path}\n"
        drawing = Drawing(path.read_text())
        assert expected in drawing.texts
        assert any(text.endswith(f", {size} on disk") for text in drawing.texts)
    assert Drawing(du(logs.path, "--svg=-").stdout).title == f"room on the disk: {logs.path}"
    assert du(logs.path, "--svg=-", "--json").exit_code == 2
