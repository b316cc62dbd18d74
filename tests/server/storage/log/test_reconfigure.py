"""A log that gets another configuration while it is served."""

from __future__ import annotations

from pathlib import Path

import attrs
from triolog.server.config import Durability, LogConfig
from triolog.server.storage.log.reconfigure import reconfigure

from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import DrivenLog, batch, open_driven

SIZE = len(batch())


def change(driven: DrivenLog, **changes: object) -> None:
    driven.run(reconfigure(driven.log, config=attrs.evolve(driven.log.config, **changes)))


def test_every_segment_follows_the_new_configuration(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=2 * SIZE))
    for _ in range(5):
        driven.append(batch())
    change(driven, segment_bytes=4 * SIZE, index_interval_bytes=0)
    assert {segment.config for segment in driven.log.segments} == {driven.log.config}
    for _ in range(6):
        driven.append(batch())
    assert [segment.base_offset for segment in driven.log.segments] == [0, 2, 4, 8]
    assert driven.offsets() == list(range(11))


def test_the_preallocated_rest_goes_with_preallocation(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=10_000, preallocate=True))
    driven.append(batch())
    path = Path(driven.log.active.log.path)
    change(driven, retention_ms=5)
    assert path.stat().st_size == 10_000
    change(driven, preallocate=False)
    assert path.stat().st_size == SIZE
    driven.append(batch())
    driven.roll()
    assert path.stat().st_size == 2 * SIZE


def test_another_durability_forces_what_is_there_to_the_device() -> None:
    fs = CrashFileSystem()
    driven = open_driven("/log", fs=fs)
    driven.append(batch())
    path = driven.log.active.log.path
    change(driven, retention_ms=5)
    assert not fs.durable_content(path)
    change(driven, durability=Durability.parse("fsync"))
    assert fs.durable_content(path) == fs.content(path)
    assert driven.log.recovery_point == 1
