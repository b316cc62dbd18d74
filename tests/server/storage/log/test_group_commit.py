"""A group commit writes what its appends would have written one by one, and a roll comes exactly where it is due."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.records.builder import build_batch
from triolog.server.config import LogConfig
from triolog.server.storage.log.append import AppendResult
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
