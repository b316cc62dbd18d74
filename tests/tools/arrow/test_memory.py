from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

MOST_MIB: Final = 200
MEASURED: Final = """
import pathlib, struct, sys
import numpy as np
import pyarrow as pa
from triolog.protocol.records.columnar.encode import Encoding, encode_batches
from triolog.tools import arrow

folder, megabytes = pathlib.Path(sys.argv[1]) / "t-0", int(sys.argv[2])
folder.mkdir()
values = pa.array([np.random.default_rng(1).bytes(1000) for _ in range(1000)], pa.binary())
offset = 0
with open(folder / f"{0:020d}.log", "wb") as file:
    while offset < megabytes * 1000:
        for encoded in encode_batches(pa.RecordBatch.from_arrays([values], ["value"]), Encoding(batch_records=100)):
            file.write(struct.pack(">q", offset) + encoded.data[8:])
            offset += encoded.records
rows = sum(batch.num_rows for batch in arrow.read(folder, "t"))
assert rows == offset, (rows, offset)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(int(peak) // 1024)
"""
"""`ru_maxrss` would count what the process was forked from."""


def most_mib(folder: Path, megabytes: int) -> int:
    folder.mkdir()
    command = [sys.executable, "-c", MEASURED, str(folder), str(megabytes)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=250).stdout)


@pytest.mark.merge  # some hundred MB are written and read
def test_a_read_of_some_hundred_megabytes_stays_below_200_mib(tmp_path: Path) -> None:
    assert most_mib(tmp_path / "some", 400) <= MOST_MIB
