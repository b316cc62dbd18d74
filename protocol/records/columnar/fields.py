"""The fields of all records of a group, as arrays; the layout is in `..record`.

Every field only moves the position forward. So where the position behind the last field is the record's end, all fields
lay inside the record; where it is not, what was read means nothing and the scalar codec says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .batch_groups import BatchGroup
from .header_fields import HeaderFields, read_headers
from .record_starts import record_starts
from .varints import LeftToScalarError, read_varints, read_varlongs

if TYPE_CHECKING:
    from .varints import Int64s


class Slices(NamedTuple):
    """Positions and lengths in the group's buffer; a negative length is null."""

    starts: Int64s
    lengths: Int64s


class Payload(NamedTuple):
    """What producers sent."""

    keys: Slices
    values: Slices
    headers: HeaderFields


class RecordHeads(NamedTuple):
    """One element per record: what comes before the key, which begins at `positions`."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    positions: Int64s
    ends: Int64s
    """Of the records."""

    def check(self) -> None:
        """All that can be said of the heads alone. LeftToScalarError."""
        if (self.positions > self.ends).any():
            raise LeftToScalarError


def read_heads(group: BatchGroup) -> RecordHeads:
    """LeftToScalarError for anything that is not clearly as it should be."""
    import numpy as np

    data = np.frombuffer(group.buffer, np.uint8)
    starts, ends = record_starts(group)
    _, positions = read_varints(data, starts)
    timestamp_deltas, positions = read_varlongs(data, positions + 1)
    offset_deltas, positions = read_varints(data, positions)
    return RecordHeads(timestamp_deltas, offset_deltas, positions, ends)


def read_payload(group: BatchGroup, heads: RecordHeads) -> Payload:
    """What is behind the heads. LeftToScalarError for anything that is not clearly as it should be."""
    import numpy as np

    data = np.frombuffer(group.buffer, np.uint8)
    positions, ends = heads.positions, heads.ends
    key_lengths, key_starts = read_varints(data, positions)
    value_lengths, value_starts = read_varints(data, key_starts + np.maximum(key_lengths, 0))
    headers, positions = read_headers(data, value_starts + np.maximum(value_lengths, 0), ends)
    if (positions != ends).any():
        raise LeftToScalarError
    return Payload(Slices(key_starts, key_lengths), Slices(value_starts, value_lengths), headers)
