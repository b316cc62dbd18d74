"""Log lines that a peer, or a lack of descriptors, could repeat many times a second: each once a minute, or a few times."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

import attrs
import trio

AGAIN_S: Final = 60.0
LINES: Final = 10
"""Warnings of one kind within that time."""
MAX_LINE_CHARS: Final = 1000
"""Peers choose their names."""


@attrs.define
class _Said:
    at_s: float
    times: int = 1
    left_out: int = 0


@attrs.define(eq=False, repr=False)
class Seldom:
    """What was said when. Keys are chosen by us, so they are few."""

    _said: dict[Hashable, _Said] = attrs.field(factory=dict)

    def left_out(self, key: Hashable, now_s: float, most: int = 1) -> int | None:
        """How often it was not said since the last time; None when it is not to be said now either:
        it was, `most` times."""
        said = self._said.get(key)
        if said is not None and now_s < said.at_s + AGAIN_S:
            if said.times < most:
                said.times += 1
                return 0
            said.left_out += 1
            return None
        self._said[key] = _Said(now_s)
        return 0 if said is None else said.left_out

    def warn(self, logger: logging.Logger, key: Hashable, line: str) -> None:
        """A few times a minute; the other times it is there for who debugs."""
        line = line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}..."
        left_out = self.left_out(key, trio.current_time(), LINES)
        if left_out is None:
            logger.debug("%s", line)
        else:
            logger.warning("%s%s", line, f" ({left_out} more like it were not said)" if left_out else "")
