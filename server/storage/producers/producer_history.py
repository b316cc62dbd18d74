"""What a log knew of its producers at an offset: from a snapshot, what lies beside it, and the log itself.

A snapshot that has no `.batches` beside it (Kafka wrote it) names the newest batch of each producer only. Then the headers of
the last TAIL_BYTES before it are looked through for those before: a client's five requests in flight have just been sent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import MIB
from ....protocol.records.batch import BatchHeader
from ..disk.diskops import Procedure
from ..segments.segment_view import SegmentView
from .producer_cursor import CACHED_BATCHES
from .producer_entry import BatchMetadata
from .producer_snapshots import load_newest, replay
from .producer_state import ProducerState

LOGGER: Final = logging.getLogger(__name__)

TAIL_BYTES: Final = 4 * MIB
"""Holds what a client with default sizes has in flight."""


def producers_at(
    directory: str, snapshots: Sequence[int], views: Sequence[SegmentView], log_start_offset: int, offset: int
) -> Procedure[ProducerState]:
    """The state at an offset: the newest snapshot that is not above it, and the batches since then. `views`: ascending segments
    that are known to be good. Raises CorruptRecordError."""
    producers = yield from load_newest(directory, snapshots, log_start_offset, offset)
    if producers.has_newest_only:
        yield from remember_earlier(producers, views)
    if producers.end_offset < offset:
        yield from replay(producers, views, offset)
    return producers


def remember_earlier(producers: ProducerState, views: Sequence[SegmentView]) -> Procedure[None]:
    """Let the entries have the batches before their newest, as far as the end of the log before the snapshot shows them. What
    cannot be read there is passed over: nobody else needs it now."""
    entries = producers.entries
    found: dict[int, deque[BatchMetadata]] = {}

    def see(header: BatchHeader, _: int) -> None:
        entry = entries.get(header.producer_id)
        if (
            entry is None
            or header.is_control
            or header.producer_epoch != entry.epoch
            or not entry.batches
            or not producers.log_start_offset <= header.last_offset < entry.batches[-1].first_offset
        ):
            return
        batch = BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        found.setdefault(header.producer_id, deque(maxlen=CACHED_BATCHES - 1)).append(batch)

    left = TAIL_BYTES
    tail: list[tuple[SegmentView, int]] = []
    for view in reversed([view for view in views if view.base_offset < producers.end_offset]):
        if left <= 0:
            break
        tail.append((view, (yield from view.position_before(view.size - left))))
        left -= view.size
    for view, position in reversed(tail):
        try:
            yield from view.bytes_from(position).visit_headers(see)
        except (CorruptRecordError, OSError) as exc:
            LOGGER.warning("%s; batches of producers behind it are not known again when they are sent again", str(exc))
    for producer_id, batches in found.items():
        entry = entries[producer_id]
        entries[producer_id] = entry._replace(batches=(*batches, *entry.batches))
    producers.has_newest_only = False
