"""The walk from header to header through a chunk of a segment: what is whole and right, and where it goes on.

What is beyond doubt is what the server's `salvage` takes without a closer look; leader epochs are not looked at.
"""

from __future__ import annotations

from typing import Final

import attrs

from ...protocol.limits import MIB
from ...protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from ...server.storage.recovery.salvage import is_possible, plain_batches
from .splits import SegmentSplit

_LARGEST_TRUSTED_BATCH_BYTES: Final = 256 * MIB
"""A header that claims more is believed only after the CRC was taken in pieces: a length may be damaged."""


@attrs.define(eq=False, repr=False)
class HeaderWalk:
    """A walk over the batch headers of a chunk. Owner: the reader of the split."""

    split: SegmentSplit
    check_crcs: bool
    position: int
    """Of `data` in the file."""
    data: memoryview
    next_offset: int
    """The least that the next batch may have."""
    at: int = 0
    """In `data`: behind the last batch that is whole and right."""
    is_transactional: bool = False
    is_end: bool = False
    """Whether nothing behind it is wanted."""
    needed_bytes: int = 0
    """From there on, when the chunk was too small for the next batch or for what tells whether its offset is true."""
    damaged_at: tuple[int, int] | None = None
    """Position of damage, and the least offset that a batch may have there."""

    @property
    def whole(self) -> memoryview:
        """The batches that are whole and right."""
        return self.data[: self.at]

    def run(self) -> None:
        """Sets one of `is_end`, `needed_bytes`, `damaged_at`, or none of them when the chunk ends inside of a header.

        The end is where a second batch in a row lies at or above `high`.
        """
        limit, high = self.split.end_offset, self.split.high
        for header, _, stop in plain_batches(
            self.data, self.at, expected=self.next_offset, limit=limit, check_crcs=self.check_crcs
        ):
            if self.next_offset >= high:
                self.is_end = True
                return
            if header.is_transactional:
                self.is_transactional = True
            self.at, self.next_offset = stop, header.next_offset
        self._look_at_the_next()

    def _look_at_the_next(self) -> None:
        """At the batch that was not taken: is it wanted, is the chunk too small for it, or is it damaged?"""
        size = len(self.data) - self.at
        rest = self.split.end_byte - self.position - self.at
        if size < RECORD_BATCH_OVERHEAD:
            if size and size == rest:
                self.damaged_at = self.position + self.at, self.next_offset
            return
        header = parse_header(self.data, self.at)
        largest = min(rest, max(_LARGEST_TRUSTED_BATCH_BYTES, size))
        has_place = header.size_bytes <= largest and header.next_offset <= self.split.end_offset
        if is_possible(header) and has_place and header.base_offset >= self.next_offset:
            if self.next_offset >= self.split.high:
                self.is_end = True
                return
            is_doubtful = header.base_offset > self.next_offset
            needed = min(rest, header.size_bytes + (RECORD_BATCH_OVERHEAD if is_doubtful else 0))
            if needed > size:
                self.needed_bytes = needed
                return
        self.damaged_at = self.position + self.at, self.next_offset
