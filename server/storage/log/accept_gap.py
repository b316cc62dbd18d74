"""Somebody accepts that offsets are missing: readers pass over them from then on, whatever the topic's gap.policy is."""

from __future__ import annotations

from ..disk.diskops import Procedure
from ..disk.path_ops import WriteFile
from .gaps import FILE_NAME, OffsetGap, accepted, encode_gaps, gap_at
from .log import Log


def accept_gap(log: Log, *, start_offset: int) -> Procedure[OffsetGap | OSError]:
    """Accept the gap that starts there and answer it, or why it could not be written. It counts when it is on the device; a
    second time changes nothing. Raises InvalidRequestError where no gap starts there."""
    gaps = accepted(log.gaps, start_offset, log.now_ms())
    if gaps != log.gaps:
        try:
            yield WriteFile(f"{log.directory}/{FILE_NAME}", encode_gaps(gaps), durable=log.sync_metadata)
        except OSError as exc:
            return exc
        log.gaps = gaps
        log.changed()
    found = gap_at(gaps, start_offset)
    assert found is not None
    return found
