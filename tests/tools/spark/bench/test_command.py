from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from triolog.tools.bench.measuring.machine import Machine
from triolog.tools.bench.measuring.report import Report
from triolog.tools.spark.bench.cpu import cpu_used_s, tree_cpu_s
from triolog.tools.spark.bench.place import BATCH_ROWS, FIRST_MS, make_rows

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def _burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_of_a_process_and_of_all_its_children_is_counted_once() -> None:
    assert 0.15 < cpu_used_s(os.getpid(), lambda: _burn(0.2)) < 2
    used = cpu_used_s(os.getpid(), lambda: subprocess.run([sys.executable, "-c", BURN], check=True))
    assert 0.28 < used < 0.6
    program = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN + chr(10) + 'print(1, flush=True); input()'!r}])"
    )
    before = tree_cpu_s(os.getpid())
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        assert tree_cpu_s(os.getpid()) - before > 0.28
        process.communicate(b"\n")
    assert cpu_used_s(os.getpid(), lambda: None) > 0


@pytest.mark.parametrize("count", [1, BATCH_ROWS, BATCH_ROWS + 1])
def test_rows_are_as_many_as_asked_for_a_millisecond_apart(count: int) -> None:
    batches = list(make_rows(count, 100))
    assert sum(batch.num_rows for batch in batches) == count
    keys = [key for batch in batches for key in batch.column("key").to_pylist()]
    times = [at for batch in batches for at in batch.column("timestamp").to_pylist()]
    assert keys == [number.to_bytes(8, "big") for number in range(count)]
    assert times == list(range(FIRST_MS, FIRST_MS + count))
    assert {len(value) for value in batches[-1].column("value").to_pylist()} == {100}


def test_a_report_with_a_name_does_not_replace_the_servers(tmp_path: Path) -> None:
    machine = Machine("cpu", 2, 4.0, "6", "3.11", "ext4", "/dev/x", 0.1, 0.5)
    paths = [Report(datetime.date(2026, 1, 2), machine, "quick", [], name).save(tmp_path) for name in ("", "spark")]
    names = sorted(path.name for each in paths for path in each)
    assert names == ["2026-01-02-spark.json", "2026-01-02-spark.md", "2026-01-02.json", "2026-01-02.md"]
