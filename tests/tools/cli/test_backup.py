from __future__ import annotations

import json
import threading
from pathlib import Path

import triolog

from tests.support.stopped_logs import write_stopped_logs

from .conftest import call

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
