"""Decides when and how much a link may send: sizes of stretches, windows of time, pauses before another try. No threads, no
sockets; time is an argument.

A stretch is the content of one transaction, or of one round of acknowledgements. Large stretches cost little on a fast link. On
a slow one a stretch must not take longer than the upstream keeps a transaction open, so its size follows what the link has
carried: twice as much after a stretch that went fast, half after one that did not.

Windows are `22:00-06:00`, `sat,sun`, `mon-fri 22:00-06:00`, in a time zone. A window that ends before it begins ends on the
next day, and belongs to the day on which it begins. Where clocks are changed a window begins and ends at the local times that
it names.

| failure | longest pause |
|---|---|
| refused: a login, a certificate, a right | 60 s |
| may pass by itself: nobody there, no answer in time, a coordinator that is loading; the source | 10 s |
| the same while somebody waits until nothing is left | 1 s |

Pauses double from the first one to the longest. While nobody is there a try takes ten seconds, in which librdkafka connects
again and again, so longer pauses would spare nothing. A refusal costs a login each time, perhaps one of few.
"""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

import attrs

from ..client.backoff import Backoff

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


DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIMES: Final = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")
_DAY_MINUTES: Final = 24 * 60


@attrs.frozen(kw_only=True)
class Window:
    """Every week on `days` (0 is Monday), from one minute of the day up to another, which may be one of the next day."""

    days: frozenset[int]
    begin: int
    end: int


def parse_window(text: str) -> Window:
    """Raises ValueError."""
    words = text.lower().split()
    times = words.pop() if words and _TIMES.fullmatch(words[-1]) else "00:00-24:00"
    if len(words) > 1 or not text.strip():
        raise ValueError(f"{text!r} is not a window. Use 22:00-06:00, sat,sun or mon-fri 22:00-06:00")
    match = _TIMES.fullmatch(times)
    assert match is not None
    begin, end = (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4]))
    if int(match[2]) > 59 or int(match[4]) > 59 or begin >= _DAY_MINUTES or end > _DAY_MINUTES or begin == end:
        raise ValueError(f"{times!r} is not a span of a day. Use HH:MM-HH:MM, up to 24:00")
    days = frozenset(range(7)) if not words else _days(words[0])
    return Window(days=days, begin=begin, end=end if end > begin else end + _DAY_MINUTES)


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ValueError(f"{part!r} is not a day. Use {', '.join(DAYS)} or two of them, as in mon-fri")
        start, stop = DAYS.index(first), DAYS.index(last if dash else first)
        found.update(day % 7 for day in range(start, stop + 1 if stop >= start else stop + 8))
    return frozenset(found)


def opens_in_s(windows: Sequence[Window], now_s: float, zone: tzinfo | None) -> float:
    """Seconds until one of the windows is open; 0: one is, or there are none. `now_s` is seconds since 1970."""
    if not windows:
        return 0.0
    today = datetime.fromtimestamp(now_s, zone).date()
    waits = []
    for days_on in range(-1, 9):
        day = today + timedelta(days=days_on)
        for window in windows:
            if day.weekday() in window.days and _moment(day, window.end, zone) > now_s:
                waits.append(max(0.0, _moment(day, window.begin, zone) - now_s))
    return min(waits)


def _moment(day: date, minute: int, zone: tzinfo | None) -> float:
    """A local time in seconds since 1970."""
    local = datetime.combine(day, time(), zone) + timedelta(minutes=minute)  # as the clock on the wall goes
    return local.timestamp()


FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 10_000
LONGEST_REFUSED_MS: Final = 60_000
LONGEST_DRAINING_MS: Final = 1_000


class Failure(enum.Enum):
    """Why a link is to try again."""

    PASSING = "passing"
    REFUSED = "refused"


class Retry:
    """Owner: the link."""

    __slots__ = ("_draining", "_pauses", "_said", "_times")

    def __init__(self, jitter: random.Random) -> None:
        self._pauses = {
            Failure.PASSING: Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, jitter),
            Failure.REFUSED: Backoff(FIRST_PAUSE_MS, LONGEST_REFUSED_MS, jitter),
        }
        self._draining = Backoff(FIRST_PAUSE_MS, LONGEST_DRAINING_MS, jitter)
        self._said, self._times = "", 0

    def pause_s(self, failure: Failure, *, is_awaited: bool) -> float:
        """It has failed again. `is_awaited`: somebody waits until nothing is left."""
        pause_s = self._pauses[failure].pause_s()
        return min(pause_s, self._draining.pause_s()) if is_awaited and failure is Failure.PASSING else pause_s

    def is_news(self, message: str) -> bool:
        """Return whether to log the failure: another reason, or the same for the 1st, 2nd, 4th, 8th time in a row."""
        self._times = self._times + 1 if message == self._said else 1
        self._said = message
        return self._times & (self._times - 1) == 0

    def reset(self) -> None:
        """Something went upstream, or nothing is left."""
        for each in (*self._pauses.values(), self._draining):
            each.reset()
        self._said, self._times = "", 0
