"""Row 15: what appenders notice when retention gives up many segments at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ....server.storage.disk.paths import DELETED_SUFFIX, LOG_SUFFIX
from ..loads.beside import ROUNDS, Appenders, beside_lines, sync_all
from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import RowResult, at_most
from ..measuring.server import Server, serving
from ..measuring.wire import Wire, batch_of

SEGMENTS: Final = 1_000
RECORDS: Final = 60
VALUE_BYTES: Final = 1000
SETTINGS: Final = {"retention_check_interval_ms": 100}


def appends_beside_retention(bench: Bench) -> RowResult:
    """`fsync`; appenders at a fixed rate to a topic of their own, one topic after the other loses all but its last segment."""
    bench = bench.with_rounds(ROUNDS)
    segments = bench.scale.count(SEGMENTS, least=20)
    with bench.workspace() as directory, serving(directory, durability="fsync", settings=SETTINGS) as server:
        appenders = Appenders(bench, server)
        appenders.create_topic()
        topics = _fill_topics(bench, server, segments)
        samples = bench.interleave(
            {
                "alone": appenders.alone,
                "beside": lambda: _beside(appenders, server, next(topics), segments),
            }
        )
    return RowResult(
        15,
        f"appenders' p99 while retention deletes {segments:,} segments",
        beside_lines("retention", samples["beside"], samples["alone"], at_most(1.25, "x")),
        [f"each segment has {len(batch_of(RECORDS, VALUE_BYTES)) / 1000:.0f} KB; deleted is when all files are unlinked"],
    )


def _fill_topics(bench: Bench, server: Server, segments: int) -> Iterator[str]:
    """Every batch but the last makes its segment full."""
    names = [f"expired-{number}" for number in range(bench.scale.rounds + 1)]
    segment_bytes = len(batch_of(RECORDS, VALUE_BYTES))
    for name in names:
        bench.say(f"filling {segments} segments of {name}")
        config = {"segment_bytes": str(segment_bytes), "file_delete_delay_ms": "0", "durability": "os"}
        run_load(
            fill,
            address=server.address,
            topic=name,
            partitions=1,
            batches=segments + 1,
            records=RECORDS,
            value_bytes=VALUE_BYTES,
            config=config,
        )
    sync_all()
    return iter(names)


def _beside(appenders: Appenders, server: Server, topic: str, segments: int) -> float:
    directory = Path(server.data, f"{topic}-0")
    *_, last, _active = sorted(directory.glob(f"*{LOG_SUFFIX}"))
    renamed = last.with_name(last.name + DELETED_SUFFIX)

    def begin() -> None:
        found = len(list(directory.glob(f"*{LOG_SUFFIX}")))
        assert found > segments, f"{directory} was to have {segments} segments beside the active one, there are {found}"
        with Wire(server.address) as wire:
            wire.alter_topic(topic, retention_bytes="1")

    # The oldest goes first, so one name tells; to list thousands would take a core from those who are measured.
    return appenders.beside(begin, lambda: not last.exists() and not renamed.exists())
