"""Counters looked at from time to time, as rates over the last minutes or the last day. Pure: who looks names the time."""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs

LEAST_S: Final = 1.0
"""Less time says nothing."""


@attrs.frozen(kw_only=True)
class Look:
    """What counters said at one moment. None: the system does not tell."""

    at_s: float
    written_bytes: int | None
    """To a disk, or by the process."""
    appended_bytes: int
    """To logs, since the start."""
    room_bytes: int | None = None
    """What can still be written until appends are refused."""


@attrs.define(eq=False, repr=False)
class Looks:
    """Those of the last `span_s`, `most` at most, evenly. Owner: who looks."""

    span_s: float
    most: int
    _kept: deque[Look] = attrs.field(factory=deque)

    def add(self, look: Look) -> None:
        """Keep a look, unless the last one is too young; those behind the span go, but for one at its very end."""
        kept = self._kept
        if not kept or look.at_s - kept[-1].at_s >= self.span_s / self.most:
            kept.append(look)
        while len(kept) > 1 and look.at_s - kept[1].at_s >= self.span_s:
            kept.popleft()

    def until(self, look: Look) -> Rates:
        """What happened from the oldest look that is kept up to this one."""
        return Rates.between(self._kept[0] if self._kept else look, look)

    def __len__(self) -> int:
        return len(self._kept)


@attrs.frozen(kw_only=True)
class Rates:
    """What happened between two looks. None: that cannot be said."""

    written_per_s: float | None = None
    written_per_appended: float | None = None
    """Bytes to the disk for each byte that was appended; None while nothing is."""
    full_in_s: float | None = None
    """When there is no room any more; None while that does not become less."""

    @classmethod
    def between(cls, before: Look, after: Look) -> Rates:
        seconds = after.at_s - before.at_s
        if seconds < LEAST_S:
            return cls()
        written = _growth(before.written_bytes, after.written_bytes)
        appended = after.appended_bytes - before.appended_bytes
        return cls(
            written_per_s=None if written is None else written / seconds,
            written_per_appended=None if written is None or appended <= 0 else written / appended,
            full_in_s=_full_in_s(before.room_bytes, after.room_bytes, seconds),
        )


def _growth(before: int | None, after: int | None) -> int | None:
    """None also where a counter fell: it is another disk's."""
    return None if before is None or after is None or after < before else after - before


def _full_in_s(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or after >= before:
        return None
    return max(0, after) * seconds / (before - after)


def days_to_endurance(endurance_bytes: int, written_bytes: int | None, written_per_s: float | None) -> float | None:
    """How long a disk lasts at this rate that is made for so many bytes; None: not known, or for ever."""
    if not endurance_bytes or written_bytes is None or not written_per_s:
        return None
    return max(0, endurance_bytes - written_bytes) / written_per_s / 86_400
