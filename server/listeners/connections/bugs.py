"""What becomes of an exception that nobody expected while a peer is served: the peer's connection ends, and nothing else.

It is counted with its protocol and logged with its traceback. A peer may be able to repeat it as fast as it connects, so each
place in the code is said once a minute, with how often it happened in between.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from typing import Final

import trio

from .counters import ProtocolCounters

LOGGER: Final = logging.getLogger(__name__)


def report_bug(counters: ProtocolCounters, what: str, error: BaseException) -> None:
    """Count and log what `what` ended with. Raises nothing: there may be no memory left to say it."""
    counters.bugs += 1
    with contextlib.suppress(Exception):
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]  # the groups of nurseries say nothing
        left_out = counters.said.left_out(_place(error), trio.current_time())
        if left_out is not None:
            again = f" ({left_out} more like it were not said)" if left_out else ""
            LOGGER.error("%s met a bug%s", what, again, exc_info=error)


def _place(error: BaseException) -> tuple[str, str, int]:
    """(class, file, line) where it was raised; of a group the first one's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    file, line = "", 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        file, line = frame.f_code.co_filename, number
    return type(error).__name__, file, line
