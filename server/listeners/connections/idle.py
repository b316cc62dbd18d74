"""Ends connections whose peers ask for nothing."""

from __future__ import annotations

from typing import Final, Protocol

import trio

IDLE_TIMEOUT_S: Final = 600.0
"""A connection without a request for so long is closed (Kafka: connections.max.idle.ms)."""
IDLE_CHECKS: Final = 10
"""How often within that time it is looked at."""


class Idles(Protocol):
    """A session, as far as it may be idle."""

    @property
    def taken_count(self) -> int:
        """Requests that were taken up."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, so that silence is no idleness."""

    def end_idle(self) -> None:
        """Take no more requests."""


async def end_when_idle(session: Idles, timeout_s: float) -> None:
    """A task beside the requests: a deadline that every request moves would cost more than the request's header, and one around
    them would cut off those that wait for long. To be cancelled when the session ends."""
    seen, looks = session.taken_count, 0
    while looks < IDLE_CHECKS:
        await trio.sleep(timeout_s / IDLE_CHECKS)
        if session.is_busy or session.taken_count != seen:
            seen, looks = session.taken_count, 0
        else:
            looks += 1
    session.end_idle()
