"""Recovery never serves records that nobody sent: a torn append is cut, even when its record contains a whole record batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from triolog.protocol.limits import INT64_MAX
from triolog.protocol.types import TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.recovery.recovery import OpenLog, open_log
from triolog.server.storage.recovery.salvage import Damage, GoodBatch, scan_batches

from tests.support.logs import START_MS, batch
from tests.support.record_batches import patched

WHOLE: Final = 3
"""Batches before the torn one, of one record each."""
INNER_OFFSETS: Final = (0, 1, WHOLE, WHOLE + 1, 100)


def stamped(offset: int, **content: bytes) -> bytes:
    return patched(batch(base_offset=offset, **content), partition_leader_epoch=0)


def torn_logs() -> Iterator[tuple[str, bytes]]:
    """A description, and the bytes of a log whose last append is torn and contains a whole batch."""
    before = b"".join(stamped(offset) for offset in range(WHOLE))
    for inner_offset in INNER_OFFSETS:
        inner = stamped(inner_offset, value=b"nobody sent this here")
        outer = stamped(WHOLE, value=b"." * 700 + inner + b"." * 2000)
        inner_end = outer.index(inner) + len(inner)
        for size in (inner_end, inner_end + 1, 2200, len(outer) - 1):
            yield f"inner offset {inner_offset}, {size} of {len(outer)} bytes", before + outer[:size]


def test_torn_append_is_one_damage_and_its_record_is_not_searched(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for what, data in torn_logs():
        path.write_bytes(data)
        *good, torn = scan_batches(OsFileSystem(), str(path), base_offset=0, torn_from=WHOLE)
        assert [found.header.base_offset for found in good if isinstance(found, GoodBatch)] == list(range(WHOLE)), what
        assert isinstance(torn, Damage), what
        assert torn.position + torn.size == len(data), what


def test_batches_after_a_damaged_length_are_still_found(tmp_path: Path) -> None:
    """A length out of the file whose batch is whole is damage, wherever the recovery point is."""
    batches = [stamped(offset) for offset in range(WHOLE + 2)]
    batches[1] = batches[1][:8] + (1 << 20 | 0xFFF).to_bytes(4, "big") + batches[1][12:]
    path = tmp_path / "log"
    path.write_bytes(b"".join(batches))
    for torn_from in (0, 2, INT64_MAX):
        found = list(scan_batches(OsFileSystem(), str(path), base_offset=0, torn_from=torn_from))
        assert [each.position for each in found] == [sum(map(len, batches[:number])) for number in range(WHOLE + 2)], torn_from


def test_log_after_a_kill_ends_before_the_torn_append(tmp_path: Path) -> None:
    for number, (what, data) in enumerate(torn_logs()):
        directory = tmp_path / f"t-{number}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(data)
        log = open_log(
            OsFileSystem(),
            OpenLog(
                topic_partition=TopicPartition("t", number),
                directory=str(directory),
                config=LogConfig(),
                now_ms=lambda: START_MS,
                was_clean=False,
            ),
        )
        assert (log.log_end_offset, log.gaps) == (WHOLE, ()), what
