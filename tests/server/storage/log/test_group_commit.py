"""A group commit writes what its appends would have written one by one, and a roll comes exactly where it is due."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_TIMESTAMP
from triolog.server.config import LogConfig
from triolog.server.storage.log.append import AppendPlan, AppendResult, plan_append
from triolog.server.storage.log.prepare import PreparedAppend, prepare_append

from tests.server.storage.log.test_log_model import Batch, configs, groups
from tests.support.crash_fs import CrashFileSystem
from tests.support.inline_log import ORDERS, InlineLog

DIRECTORY: Final = "/orders-0"
NOW_MS: Final = 1_000

many = st.lists(groups, min_size=1, max_size=5).map(lambda drawn: [append for group in drawn for append in group])


@attrs.define(eq=False)
class _Scene:
    """A log in memory and all that it answered."""

    config: LogConfig
    fs: CrashFileSystem = attrs.field(factory=CrashFileSystem)
    answers: list[AppendResult | RequestError] = attrs.field(factory=list)
    inline: InlineLog = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.fs.make_directory(DIRECTORY)
        self.inline = InlineLog.open_orders(self.fs, DIRECTORY, self.config, lambda: NOW_MS)

    def append(self, appends: list[PreparedAppend], *, sync: bool = False) -> None:
        self.answers += self.inline.append(appends, sync=sync)

    def content(self) -> dict[str, bytes]:
        return {name: self.fs.content(f"{DIRECTORY}/{name}") for name in self.fs.list_directory(DIRECTORY)}

    def told(self) -> list[object]:
        return [answer if isinstance(answer, AppendResult) else (type(answer), answer.message) for answer in self.answers]


def _prepared(append: list[Batch], config: LogConfig) -> PreparedAppend:
    data = b"".join(build_batch([(*record, ()) for record in records], compression_type=codec) for codec, records in append)
    return prepare_append(data, ORDERS, config, now_ms=NOW_MS)


@given(configs, many, st.lists(st.integers(1, 7), min_size=1), st.booleans())
def test_a_group_writes_and_answers_what_its_appends_would_one_by_one(
    config: LogConfig, drawn: list[list[Batch]], sizes: list[int], sync: bool
) -> None:
    config = attrs.evolve(config, segment_jitter_ms=0)
    appends = [_prepared(append, config) for append in drawn]
    alone, grouped = _Scene(config), _Scene(config)
    for append in appends:
        alone.append([append])
    start = 0
    while start < len(appends):
        size = sizes[start % len(sizes)]
        grouped.append(appends[start : start + size], sync=sync)
        start += size
    assert grouped.told() == alone.told()
    assert grouped.content() == alone.content()
    for scene in (alone, grouped):
        scene.inline.close()
    assert grouped.content() == alone.content()


@given(configs, many, st.integers(1, 6), st.integers(-1, 1), st.data())
def test_a_roll_comes_exactly_when_it_is_due(
    config: LogConfig, drawn: list[list[Batch]], full_after: int, more: int, data: st.DataObject
) -> None:
    """Segment sizes and times are drawn to be met exactly, and missed by one."""
    appends = [_prepared(append, config) for append in drawn]
    sizes, times = [append.size for append in appends], [append.max_timestamp for append in appends]
    spans = [abs(one - other) for one in times for other in times]
    config = attrs.evolve(
        config,
        segment_bytes=max(*sizes, sum(sizes[:full_after])) + max(0, more),
        segment_ms=max(1, data.draw(st.sampled_from(spans)) + more),
        segment_jitter_ms=0,
    )
    scene = _Scene(config)
    log, first = scene.inline.log, NO_TIMESTAMP
    for append in appends:
        largest = NOW_MS if config.message_timestamp_type else append.max_timestamp
        if _is_due(scene, append, largest, first):
            assert _plan(scene, append).roll is not None
            scene.inline.run(log.roll())
        size_before = log.active.size
        plan = _plan(scene, append)
        assert plan.roll is None
        if not size_before:
            first = NOW_MS if config.message_timestamp_type else append.batches[0][0].max_timestamp
        scene.append([append])
        assert log.active.size == size_before + append.size
    scene.inline.close()


def _plan(scene: _Scene, append: PreparedAppend) -> AppendPlan:
    return plan_append(scene.inline.log, [append], sync=False)


def _is_due(scene: _Scene, append: PreparedAppend, largest: int, first: int) -> bool:
    """Kafka's conditions in plain numbers; `first` is the largest timestamp of the segment's first append."""
    config, active = scene.config, scene.inline.log.active
    waited_ms = largest - first if first >= 0 else 0
    return (
        active.size + append.size > config.segment_bytes
        or (active.size > 0 and waited_ms > config.segment_ms)
        or active.offset_index.entries >= config.segment_index_bytes // 8
        or active.time_index.entries >= config.segment_index_bytes // 12 - 1
    )
