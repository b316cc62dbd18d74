"""The walk of a lookup, as data: which segment, which slots, which positions, how many bytes (our own; shown by `explain`).

It uses the same steps as `fetch` and `timestamps` and counts what they read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ....protocol.limits import INT64_MAX
from ....protocol.types import NO_OFFSET, Isolation, TimeRange, TimestampAndOffset
from ..disk.diskops import Map, Procedure, Read
from ..log.log import LogSnapshot
from ..segments.segment_view import SegmentView, told
from .fetch import check_fetch_offset
from .time_range import RangeSearch, check_range
from .timestamps import NO_SUCH_RECORD, offset_for_timestamp

T = TypeVar("T")
MOST_STRETCHES: Final = 500
"""Of a log that is told whole; of one with more segments neighbours are told together."""
Walk = dict[str, Any]
CachedBytes = Callable[[Read], bool]
"""Whether a read would be answered without waiting for the device."""


def explain_timestamp(snapshot: LogSnapshot, timestamp: int, is_cached: CachedBytes) -> Procedure[Walk]:
    """Return the steps of `offset_for_timestamp` to its result. Special timestamps are resolved from the snapshot or by its
    scan."""
    walk = _start(snapshot)
    walk["asked"] = {"timestamp": timestamp}
    if timestamp < 0:
        answer = yield from _counted(offset_for_timestamp(snapshot, timestamp), walk, is_cached)
        return _finish(walk, answer)
    slot = snapshot.slot_reaching(timestamp)
    steps: list[Walk] = walk["segments"]
    answer = NO_SUCH_RECORD
    while slot < len(snapshot) and answer is NO_SUCH_RECORD:
        view, end = snapshot.segment(slot), snapshot.readable_end(slot)
        if view.max_timestamp >= timestamp and end:
            step = _segment(snapshot, slot, view)
            steps.append(step)
            procedure = _find_in(view, timestamp, snapshot, end, step)
            found = yield from _counted(procedure, step, is_cached)
            if found is not None:
                answer = found if found.offset < snapshot.high_watermark else NO_SUCH_RECORD
                break
        slot += 1
    return _finish(walk, answer)


def explain_range(snapshot: LogSnapshot, times: TimeRange, is_cached: CachedBytes) -> Procedure[Walk]:
    """Return the steps of `fetch_range` to the batches that can hold records of a range. It finds the first one like
    `explain_timestamp`, then the runs of batches, by segment. Segments without any are only counted. Raises
    InvalidRequestError."""
    check_range(snapshot, times)
    walk, steps = _start(snapshot), dict[int, Walk]()
    walk["asked"] = {"start_timestamp": times.start, "end_timestamp": min(times.end, INT64_MAX)}
    first = snapshot.slot_reaching(times.start)
    search = RangeSearch(snapshot, times, Isolation.READ_UNCOMMITTED)
    if first < len(snapshot):
        view = snapshot.segment(first)
        steps[first] = step = _range_step(snapshot, first, view)
        indexed = yield from _counted(_explain_time_index(view, times.start, step), step, is_cached)
        yield from _counted(_explain_position(view, max(indexed, snapshot.log_start_offset), step), step, is_cached)
    counted: Walk = {}
    yield from _counted(search.begin(snapshot.log_start_offset), counted, is_cached)
    _add_counts(steps.get(first, walk), counted)
    answer = {"offset": NO_OFFSET, "end_offset": NO_OFFSET, "bytes": 0, "runs": 0}
    while not search.is_done:
        search.looked_at_bytes = 0
        run = yield from _counted(search.next_run(), counted, is_cached)
        if run is None:
            _add_counts(walk, counted)
            continue
        if (found := steps.get(run.slot)) is None:
            found = steps[run.slot] = _range_step(snapshot, run.slot, snapshot.segment(run.slot))
        _add_counts(found, counted)
        found["runs"] += 1
        found["run_bytes"] += run.stop - run.first.position
        if not answer["runs"]:
            answer["offset"] = run.first_offset
        search.at = answer["end_offset"] = run.end_offset
        answer["bytes"] += run.stop - run.first.position
        answer["runs"] += 1
    walk["segments"] = [steps[slot] for slot in sorted(steps)]
    walk["segments_skipped"] = len(snapshot) - len(steps)
    walk["answer"] = answer
    return walk


def with_segments(snapshot: LogSnapshot, explained: Callable[[LogSnapshot], Procedure[Walk]]) -> Procedure[Walk]:
    """The walk that `explained` gives, and under `log_segments` what is known of all segments afterwards."""
    walk = yield from explained(snapshot)
    walk["log_segments"] = whole_log(snapshot)
    return walk


def whole_log(snapshot: LogSnapshot) -> list[Walk]:
    """All segments in order, at most MOST_STRETCHES maps: each tells of one segment or of as many neighbours as it takes."""
    count = len(snapshot)
    each = -(-count // MOST_STRETCHES) or 1
    return [
        _stretch([snapshot.segment(slot) for slot in range(start, min(start + each, count))]) for start in range(0, count, each)
    ]


def _stretch(views: list[SegmentView]) -> Walk:
    return {
        "segment": views[0].base_offset,
        "segments": len(views),
        "size_bytes": sum(view.size for view in views),
        "least_timestamp": told(min(view.least_timestamps.least for view in views)),
        "max_timestamp": max(view.max_timestamp for view in views),
    }


def _range_step(snapshot: LogSnapshot, slot: int, view: SegmentView) -> Walk:
    step = _segment(snapshot, slot, view)
    step["least_timestamp"] = view.least_timestamp
    return step | {"runs": 0, "run_bytes": 0, "reads": [], "bytes_scanned": 0, "cached": True}


def _add_counts(step: Walk, counted: Walk) -> None:
    step["reads"] = [*step.get("reads", ()), *counted["reads"]]
    step["bytes_scanned"] = step.get("bytes_scanned", 0) + counted["bytes_scanned"]
    step["cached"] = step.get("cached", True) and counted["cached"]


def explain_offset(snapshot: LogSnapshot, offset: int, is_cached: CachedBytes) -> Procedure[Walk]:
    """Return the steps of a fetch to the batch that holds `offset`. Raises OffsetOutOfRangeError."""
    check_fetch_offset(snapshot, offset)
    walk = _start(snapshot)
    walk["asked"] = {"offset": offset}
    answer: Walk = {"offset": NO_OFFSET}
    slot = max(0, snapshot.slot_of(offset))
    while slot < len(snapshot) and offset < snapshot.high_watermark:
        view = snapshot.segment(slot)
        step = _segment(snapshot, slot, view)
        walk["segments"].append(step)
        found = yield from _counted(_find_batch(view, offset, step), step, is_cached)
        if found is not None:
            if found["position"] < snapshot.readable_end(slot):
                answer = found
            break
        slot += 1
    walk["answer"] = answer
    return walk


def _find_in(
    view: SegmentView, timestamp: int, snapshot: LogSnapshot, end: int, step: Walk
) -> Procedure[TimestampAndOffset | None]:
    indexed = yield from _explain_time_index(view, timestamp, step)
    yield from _explain_position(view, max(indexed, snapshot.log_start_offset), step)
    return (
        yield from view.find_offset_by_timestamp(
            timestamp,
            snapshot.log_start_offset,
            end=end,
            max_bytes=snapshot.max_decompressed_bytes,
            check_crcs=snapshot.check_crcs,
        )
    )


def _explain_time_index(view: SegmentView, timestamp: int, step: Walk) -> Procedure[int]:
    slot, entry_timestamp, indexed = yield from view.first_offset_of(timestamp)
    step["time_index"] = {
        "entries": view.time_entries,
        "slot": slot,
        "timestamp": entry_timestamp,
        "offset": indexed,
    }
    return indexed


def _find_batch(view: SegmentView, offset: int, step: Walk) -> Procedure[Walk | None]:
    yield from _explain_position(view, offset, step)
    found = yield from view.translate_offset(offset)
    if found is None:
        return None
    return {
        "offset": max(offset, found.header.base_offset),
        "position": found.position,
        "batch_base_offset": found.header.base_offset,
        "batch_last_offset": found.header.last_offset,
        "batch_bytes": found.header.size_bytes,
        "batch_max_timestamp": found.header.max_timestamp,
    }


def _explain_position(view: SegmentView, offset: int, step: Walk) -> Procedure[None]:
    """The entry as it stands in the index. A lookup does without one that is damaged, and what it reads then shows that."""
    slot, indexed, position = yield from view.entry_of(offset)
    step["offset_index"] = {
        "entries": view.offset_entries,
        "looked_up": offset,
        "slot": slot,
        "offset": indexed,
        "position": position,
    }


def _start(snapshot: LogSnapshot) -> Walk:
    return {
        "segment_count": len(snapshot),
        "log_start_offset": snapshot.log_start_offset,
        "high_watermark": snapshot.high_watermark,
        "segments": [],
    }


def _segment(snapshot: LogSnapshot, slot: int, view: SegmentView) -> Walk:
    return {
        "segment": view.base_offset,
        "number": slot,
        "size_bytes": view.size,
        "max_timestamp": view.max_timestamp,
        "is_active": slot == len(snapshot) - 1,
    }


def _finish(walk: Walk, answer: TimestampAndOffset) -> Walk:
    walk["answer"] = {"offset": answer.offset, "timestamp": answer.timestamp, "leader_epoch": answer.leader_epoch}
    return walk


def _counted(procedure: Procedure[T], step: Walk, is_cached: CachedBytes) -> Procedure[T]:
    """Run a procedure and note in `step` what it reads."""
    step["reads"], step["bytes_scanned"], step["cached"] = [], 0, True
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            operation = procedure.send(answer) if error is None else procedure.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(operation, Read):
            cached = is_cached(operation)
            step["reads"].append({"position": operation.position, "bytes": operation.size, "cached": cached})
            step["bytes_scanned"] += operation.size
            step["cached"] = step["cached"] and cached
        elif isinstance(operation, Map):
            step["cached"] = False
        answer, error = None, None
        try:
            answer = yield operation
        except Exception as exc:
            error = exc
