"""Sizes of stretches: a stretch is the content of one transaction, or of one round of acknowledgements.

Large stretches cost little on a fast link. On a slow one a stretch must not take longer than the upstream keeps a transaction
open, so its size follows what the link has carried: twice as much after a stretch that went fast, half after one that did not.
"""

from __future__ import annotations

from typing import Final

import attrs

LEAST_BYTES: Final = 16 * 1024
FIRST_BYTES: Final = 1024 * 1024
FAST_S: Final = 1.0
"""A stretch that took no longer, from its first record to its commit, may be larger the next time."""
SLOW_S: Final = 5.0
"""One that took longer is to be smaller."""
CATCH_UP_DELAY_S: Final = 1.0
"""How old a stretch may become while there is more to send than it holds: no record of it is new anyway."""


class StretchSize:
    """The size limit of the next stretch, in bytes. Owner: the link, so that a new connection begins with the known size."""

    __slots__ = ("_bytes", "_most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = min(FIRST_BYTES, most_bytes)

    @property
    def bytes(self) -> int:
        return self._bytes

    def went(self, sent_bytes: int, took_s: float) -> None:
        """A stretch is committed."""
        if took_s > SLOW_S:
            self._shrink()
        elif took_s <= FAST_S and sent_bytes >= self._bytes:
            self._bytes = min(self._bytes * 2, self._most_bytes)

    def failed(self) -> None:
        """A stretch was not committed in time, or the connection broke on it."""
        self._shrink()

    def _shrink(self) -> None:
        self._bytes = max(self._bytes // 2, min(LEAST_BYTES, self._most_bytes))


@attrs.define(eq=False, repr=False, kw_only=True)
class Stretch:
    """The records handed over since the last commit. Times are monotonic seconds. Owner: the session."""

    begun_s: float
    max_bytes: int
    max_records: int
    max_delay_s: float
    bytes: int = 0
    records: int = 0

    def is_full(self, now_s: float) -> bool:
        """Return whether the stretch has to be committed before anything is added."""
        return self.bytes >= self.max_bytes or self.records >= self.max_records or self.left_s(now_s) <= 0

    def left_s(self, now_s: float) -> float:
        """Return the seconds that the stretch may wait for more."""
        return self.begun_s + self.max_delay_s - now_s
