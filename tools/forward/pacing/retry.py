"""Pauses of a link before it tries again.

| what has failed | longest pause |
|---|---|
| it was refused: a login, a certificate, a right | 60 s |
| it may pass by itself: nobody there, no answer in time, a coordinator that is loading; the source | 10 s |
| the same while somebody waits until nothing is left | 1 s |

Pauses double from the first one to the longest. While nobody is there a try takes ten seconds, in which librdkafka connects
again and again, so longer pauses would spare nothing. A refusal costs a login each time, perhaps one of few.
"""

from __future__ import annotations

import enum
import random
from typing import Final

from ...client.backoff import Backoff

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
