"""Which records of one producer lie in a log, from an offset on. Works on a snapshot only, and looks at headers only."""

from __future__ import annotations

from typing import NamedTuple

from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_OFFSET
from ..disk.diskops import Procedure
from ..log.log_snapshot import LogSnapshot


class ProducerRecords(NamedTuple):
    """How many records there are, or were; the offset of the first, and the one behind the last, -1 where there are none."""

    records_count: int
    base_offset: int
    end_offset: int
    lost: tuple[range, ...] = ()
    """Sequences of records that damage may have taken out of the log: between their neighbours lies a gap."""


def find_producer_records(
    snapshot: LogSnapshot, producer_id: int, producer_epoch: int, start_offset: int, known_count: int = 0
) -> Procedure[ProducerRecords]:
    """The records that this producer has appended under this epoch, with sequences from 0 on, at or behind `start_offset`.

    They are counted by the last sequence: what compaction takes out of a batch leaves its sequences. `known_count`: so many are
    known to have been appended. Raises CorruptRecordError, OSError, SnapshotExpiredError.
    """
    last_sequence, base_offset, end_offset = -1, NO_OFFSET, NO_OFFSET
    producer = producer_id, producer_epoch
    lost: list[range] = []

    def see_missing(sequence: int, offset: int) -> None:
        begin = max(start_offset, end_offset)
        if sequence > last_sequence + 1 and any(gap.start_offset < offset and begin < gap.end_offset for gap in snapshot.gaps):
            lost.append(range(last_sequence + 1, sequence))

    def see(header: BatchHeader, _: int) -> None:
        nonlocal last_sequence, base_offset, end_offset
        if (
            (header.producer_id, header.producer_epoch) == producer
            and not header.is_control
            and header.base_offset >= start_offset
        ):
            see_missing(header.base_sequence, header.base_offset)
            if last_sequence < 0:
                base_offset = header.base_offset - header.base_sequence
            last_sequence, end_offset = header.last_sequence, header.next_offset

    for slot in range(max(0, snapshot.slot_of(start_offset)), len(snapshot)):
        view = snapshot.segment(slot)
        found = yield from view.translate_offset(start_offset)
        if found is not None:
            yield from view.bytes_from(found.position).visit_headers(see)
    see_missing(known_count, snapshot.log_end_offset)
    return ProducerRecords(max(last_sequence + 1, known_count), base_offset, end_offset, tuple(lost))
