"""Log lines that a peer, or a lack of descriptors, could repeat many times a second: each once a minute."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import attrs

AGAIN_S: Final = 60.0


@attrs.define
class _Said:
    at_s: float
    left_out: int = 0


@attrs.define(eq=False)
class Seldom:
    """What was said when. Keys are chosen by us, so they are few."""

    _said: dict[Hashable, _Said] = attrs.field(factory=dict)

    def left_out(self, key: Hashable, now_s: float) -> int | None:
        """How often it was not said since the last time; None when it is not to be said now either."""
        said = self._said.get(key)
        if said is not None and now_s < said.at_s + AGAIN_S:
            said.left_out += 1
            return None
        self._said[key] = _Said(now_s)
        return 0 if said is None else said.left_out
