"""Row 10: `triolog verify` and `triolog reindex` beside the plain checksum of the same file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....server.storage.disk.paths import LOG_SUFFIX, segment_file
from ..loads.tools import PARTITION, checksum_file, reindex_log, verify_log, write_log
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, at_least, at_most, ratio

TOTAL_BYTES: Final = 512_000_000
LARGE_RECORD_BYTES: Final = 1024
SMALL_RECORD_BYTES: Final = 100
MOST_MIB: Final = 64


def looking_inside(bench: Bench) -> RowResult:
    """Records of 1 KiB, uncompressed, in batches of 16 KiB; those of 100 bytes beside them. The file is in the page cache."""
    lines: list[Line] = []
    for value_bytes in (LARGE_RECORD_BYTES, SMALL_RECORD_BYTES):
        lines += _lines(bench, value_bytes, has_target=value_bytes == LARGE_RECORD_BYTES)
    return RowResult(10, "verify and reindex of a stopped log", lines)


def _lines(bench: Bench, value_bytes: int, *, has_target: bool) -> list[Line]:
    memory: dict[str, float] = {}
    with bench.workspace() as directory:
        bench.say(f"writing records of {value_bytes} bytes")
        total = bench.scale.count(TOTAL_BYTES)
        written = run_load(write_log, directory=directory, total_bytes=total, value_bytes=value_bytes)

        def rate(name: str, load: Callable[..., Any], **arguments: Any) -> Callable[[], float]:
            def measured() -> float:
                answer = run_load(load, **arguments)
                memory[name] = max(memory.get(name, 0), answer["memory_mib"])
                return float(written["bytes"] / answer["seconds"] / 1e6)

            return measured

        samples = bench.interleave(
            {
                "reindex": rate("reindex", reindex_log, directory=directory),
                "verify": rate("verify", verify_log, directory=directory, walk=True),
                "verify --no-walk": rate("verify --no-walk", verify_log, directory=directory, walk=False),
                "checksum": rate("checksum", checksum_file, path=f"{directory}/{PARTITION}/{segment_file(0, LOG_SUFFIX)}"),
            }
        )
    fast = at_least(300, "MB/s") if has_target else None
    suffix = f", records of {value_bytes} B"
    lines = [
        Line(f"verify{suffix}", "MB/s", samples["verify"], fast),
        Line(f"verify --no-walk{suffix}", "MB/s", samples["verify --no-walk"]),
        Line(f"reindex{suffix}", "MB/s", samples["reindex"], fast),
        Line(f"plain CRC-32C of the file{suffix}", "MB/s", samples["checksum"]),
        ratio(f"verify / plain CRC-32C{suffix}", samples["verify"], samples["checksum"]),
    ]
    for name in ("verify", "reindex"):
        lines.append(Line(f"memory of {name}{suffix}", "MiB", [memory[name]], at_most(MOST_MIB, "MiB")))
    return lines
