from __future__ import annotations

import re
from pathlib import Path

from triolog.protocol.limits import MIB
from triolog.tools.spark.bench.segments import figures


def test_a_hundredth_of_a_topics_time_reads_a_fiftieth_of_its_bytes_at_most(tmp_path: Path) -> None:
    """Of a topic of 32 MiB; the larger it is, the less the two ends of the window count."""
    lines = list(figures(tmp_path, 32 * MIB, 8 * MIB))
    windows = [line for line in lines if line.startswith("1%")]
    assert len(windows) == 2
    for line in windows:
        assert (found := re.search(r"\(([\d.]+)% of the log\)", line))
        assert float(found[1]) <= 2.0
    assert [line.rpartition(" ")[2] for line in lines if "times fewer" in line] == ["met", "met"]
