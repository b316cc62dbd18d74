"""What somebody still needs of a log: retention leaves it there up to the bounds of the hold, and what goes all the same is
counted. The model knows every record, and whether somebody has read it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from triolog.server.config import LogConfig
from triolog.server.storage.log.derived_files import NOTHING_DROPPED, Dropped
from triolog.server.storage.log.hold import NOTHING_HELD, is_past_bounds, lost_between
from triolog.server.storage.log.retention import (
    expire_segments,
    increment_log_start_offset,
    is_wanted,
    may_expire,
    oldest_first,
    take_out_below,
)

from tests.support.counts import counts
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SIZE: Final = len(batch())
PER_SEGMENT: Final = 5
SEGMENT: Final = PER_SEGMENT * SIZE
DAY_MS: Final = 86_400_000


def log_of(directory: Path | str, records: int, **keys: Any) -> DrivenLog:
    """One record a batch, five a segment; retention wants all of it a moment later."""
    texts = {"segment.bytes": SEGMENT, "retention.ms": 1} | {key.replace("_", "."): value for key, value in keys.items()}
    driven = open_driven(directory, config=LogConfig().overlay({key: str(value) for key, value in texts.items()}))
    for _ in range(records):
        driven.append(batch())
    driven.clock.advance(DAY_MS)
    return driven


def retain(driven: DrivenLog, held_from: int, **options: Any) -> int:
    """Both steps; answers the log start offset."""
    log, now_ms = driven.log, driven.clock()
    looked = may_expire(log, now_ms, held_from=held_from, **options)
    driven.run(expire_segments(log, now_ms, held_from=held_from, **options))
    taken = driven.run(take_out_below(log, log.log_start_offset, most=1000))
    assert looked or not taken, "the cheap look must see what the real one finds"
    return log.log_start_offset


@pytest.mark.parametrize(
    ("held_from", "start"), [(0, 0), (4, 0), (5, 5), (9, 5), (14, 10), (15, 15), (17, 17), (NOTHING_HELD, 17)]
)
@pytest.mark.parametrize("retention", [{"retention.ms": 1}, {"retention.ms": -1, "retention.bytes": 0}])
def test_retention_takes_no_segment_of_which_anything_is_needed(
    tmp_path: Path, held_from: int, start: int, retention: dict[str, int]
) -> None:
    driven = log_of(tmp_path, 17, **retention)
    assert retain(driven, held_from) == start
    assert driven.offsets() == list(range(start, 17))


def test_what_was_deleted_on_request_goes_whoever_needs_it(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 17)
    driven.run(increment_log_start_offset(driven.log, 12))
    assert retain(driven, 0) == 12
    assert driven.log.segments.first.base_offset == 10


def test_past_its_age_the_oldest_go(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 10, **{"retention.hold.max.ms": 2 * DAY_MS, "disk.full.policy": "drop-oldest"})
    driven.clock.advance(DAY_MS)
    assert retain(driven, 2) == 0
    driven.clock.advance(1)
    assert retain(driven, 2, by_time=False) == 0, "a clock that is not trusted makes nothing old"
    assert retain(driven, 2) == 10


def test_where_appends_are_refused_past_the_bounds_nothing_goes(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 20, **{"retention.hold.max.bytes": 5 * SIZE})
    assert retain(driven, 7) == 5
    assert is_past_bounds(driven.log, 7, driven.clock())
    assert is_wanted(driven.log, driven.clock())
    assert not is_past_bounds(driven.log, 10, driven.clock()), "the oldest segment is not held any more"


def test_what_is_lost_is_counted_by_offsets_and_by_its_share_of_the_bytes(tmp_path: Path) -> None:
    log = log_of(tmp_path, 12).log
    assert lost_between(log, 3, 3) is None
    assert lost_between(log, 5, 3) is None
    for start, end in ((0, 12), (3, 10), (7, 8), (11, 12)):
        lost = lost_between(log, start, end)
        assert lost is not None
        assert (lost.first_offset, lost.end_offset, lost.records) == (start, end, end - start)
        assert lost.size_bytes == (end - start) * SIZE


def test_what_was_dropped_is_known_after_a_restart_with_the_last_gap(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 20, **{"retention.hold.max.bytes": 5 * SIZE, "disk.full.policy": "drop-oldest"})
    driven.run(increment_log_start_offset(driven.log, 3))
    assert driven.log.derived.dropped == NOTHING_DROPPED, "somebody asked for that"
    retain(driven, 7)
    assert driven.log.derived.dropped == Dropped(8, 8 * SIZE, 7, 15)
    assert driven.reopen(was_clean=False).log.derived.dropped == Dropped(8, 8 * SIZE, 7, 15)
    driven.close()
    driven = driven.reopen(was_clean=True)
    for _ in range(5):
        driven.append(batch())
    assert retain(driven, 16) == 20
    assert driven.log.derived.dropped == Dropped(12, 12 * SIZE, 16, 20)


def test_a_full_disk_takes_first_what_was_handed_on_then_by_priority_then_what_nobody_holds(tmp_path: Path) -> None:
    forwarded = log_of(tmp_path / "forwarded", 15, **{"retention.hold.groups": "up", "disk.full.priority": 9})
    plain = log_of(tmp_path / "plain", 15, **{"disk.full.priority": 1})
    held = log_of(tmp_path / "held", 15, **{"retention.hold.groups": "up", "disk.full.priority": 1})
    least = log_of(tmp_path / "least", 15, **{"retention.hold.groups": "up"})
    logs, held_from = [each.log for each in (forwarded, plain, held, least)], [5, NOTHING_HELD, 0, 0]
    order = [{0: 5}, {0: 5, 3: 5}, {0: 5, 3: 10}, {0: 5, 1: 5, 3: 10}, {0: 5, 1: 10, 3: 10}]
    order += [{0: 5, 1: 10, 2: 5, 3: 10}, {0: 5, 1: 10, 2: 10, 3: 10}, {0: 10, 1: 10, 2: 10, 3: 10}]
    assert [oldest_first(logs, segments * SEGMENT, held_from) for segments in range(1, 9)] == order
    assert oldest_first(logs, 2**60, held_from) == order[-1], "active segments stay"


@attrs.define(eq=False)
class ModelLog:
    """Every record as (timestamp, number of its segment), by offset from `start` on."""

    config: LogConfig
    records: list[tuple[int, int]] = attrs.field(factory=list)
    start: int = 0
    committed: int = 0
    segment: int = 0
    dropped: int = 0
    """Went, and was not committed."""

    def append(self, timestamp: int) -> None:
        if len([None for _, segment in self.records if segment == self.segment]) == PER_SEGMENT:
            self.segment += 1
        self.records.append((timestamp, self.segment))

    def offsets_of(self, segment: int) -> list[int]:
        return [offset for offset, (_, each) in enumerate(self.records) if each == segment]

    def stored(self) -> Iterator[int]:
        """The segments that are there."""
        first = self.records[self.start][1] if self.start < len(self.records) else self.segment + 1
        return iter(range(first, self.segment + 1))

    def newest(self, segment: int) -> int:
        return max(self.records[offset][0] for offset in self.offsets_of(segment))

    def is_held(self, segment: int) -> bool:
        return self.committed <= self.offsets_of(segment)[-1]

    def bytes_behind(self, segment: int) -> int:
        return SIZE * (len(self.records) - 1 - self.offsets_of(segment)[-1])

    def retain(self, now_ms: int) -> None:
        for segment in self.stored():
            age, behind = now_ms - self.newest(segment), self.bytes_behind(segment)
            is_wanted = age > self.config.retention_ms >= 0 or behind >= self.config.retention_bytes >= 0
            bounds = self.config.retention_hold_max_ms, self.config.retention_hold_max_bytes
            is_past = age > bounds[0] >= 0 or behind >= bounds[1] >= 0
            drops = self.config.disk_full_policy.value == "drop-oldest"
            if not is_wanted or (self.is_held(segment) and not (is_past and drops)):
                return
            self.take(segment)

    def take(self, segment: int) -> None:
        end = self.offsets_of(segment)[-1] + 1
        self.dropped += max(0, end - max(self.start, self.committed))
        self.start = end
        if segment == self.segment:
            self.segment += 1


def give_up(models: list[ModelLog], needed_bytes: int) -> None:
    while needed_bytes > 0:
        oldest: list[tuple[Any, int, int]] = []
        for place, model in enumerate(models):
            segment = next((each for each in model.stored() if each != model.segment), None)
            if segment is not None:
                held = model.is_held(segment)
                oldest.append(((held, model.config.disk_full_priority, model.newest(segment)), place, segment))
        if not oldest:
            return
        _, place, segment = min(oldest)
        needed_bytes -= SIZE * len(models[place].offsets_of(segment))
        models[place].take(segment)


configs = st.fixed_dictionaries(
    {
        "segment.bytes": st.just(SEGMENT),
        "retention.ms": st.sampled_from([-1, 0, 50]),
        "retention.bytes": st.sampled_from([-1, 0, 7 * SIZE]),
        "retention.hold.groups": st.just("up"),
        "retention.hold.max.ms": st.sampled_from([-1, 0, 80, 200]),
        "retention.hold.max.bytes": st.sampled_from([-1, 0, 10 * SIZE, 15 * SIZE]),
        "disk.full.policy": st.sampled_from(["refuse", "drop-oldest", "drop-oldest"]),
        "disk.full.priority": st.integers(0, 1),
    }
)


class HoldMachine(RuleBasedStateMachine):
    """Two logs of one device. What was committed, what is there and what was dropped add up to what was appended."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="triolog-hold-"))
        self.now_ms = START_MS

    @initialize(keys=st.tuples(configs, configs))
    def create(self, keys: tuple[dict[str, Any], dict[str, Any]]) -> None:
        self.logs, self.models = [], []
        for number, each in enumerate(keys):
            config = LogConfig().overlay({key: str(value) for key, value in each.items()})
            self.logs.append(open_driven(self.folder / f"{number}", config=config))
            self.models.append(ModelLog(config))

    @rule(number=st.integers(0, 1), count=st.integers(1, 12))
    def append(self, number: int, count: int) -> None:
        for _ in range(count):
            self.logs[number].append(batch(self.now_ms))
            self.models[number].append(self.now_ms)

    @rule(number=st.integers(0, 1), data=st.data())
    def commit(self, number: int, data: st.DataObject) -> None:
        """A group may also go back, and commit below what is there."""
        self.models[number].committed = data.draw(st.integers(0, len(self.models[number].records)))

    @rule(ms=st.integers(1, 90))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule(number=st.integers(0, 1))
    def retain(self, number: int) -> None:
        model, driven = self.models[number], self.logs[number]
        driven.clock.now = self.now_ms
        retain(driven, model.committed)
        model.retain(self.now_ms)

    @rule(needed_bytes=st.integers(1, 6 * SEGMENT))
    def fill_the_disk(self, needed_bytes: int) -> None:
        offsets = oldest_first([each.log for each in self.logs], needed_bytes, [each.committed for each in self.models])
        for number, offset in offsets.items():
            driven, committed = self.logs[number], self.models[number].committed
            driven.run(increment_log_start_offset(driven.log, offset, held_from=committed))
            driven.run(take_out_below(driven.log, offset, most=1000))
        give_up(self.models, needed_bytes)

    @invariant()
    def they_agree(self) -> None:
        for driven, model in zip(getattr(self, "logs", ()), getattr(self, "models", ()), strict=True):
            assert driven.log.log_start_offset == model.start
            assert driven.log.log_end_offset == len(model.records)
            assert driven.log.derived.dropped.records == model.dropped

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestHolds = HoldMachine.TestCase
TestHolds.settings = settings(max_examples=counts(400), stateful_step_count=30, deadline=None)
