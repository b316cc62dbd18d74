"""Topics of a link that cannot go on, why, and when it is looked at them again. Times are monotonic seconds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

FIRST_S: Final = 10.0
MOST_S: Final = 600.0


@attrs.define
class _Trouble:
    message: str
    again_s: float
    pause_s: float


class Troubles:
    """Owner: the link, so that a new connection does not run into the same again at once."""

    def __init__(self) -> None:
        self._topics: dict[str, _Trouble] = {}

    @property
    def messages(self) -> Mapping[str, str]:
        return {topic: trouble.message for topic, trouble in self._topics.items()}

    def blocks(self, topic: str, now_s: float) -> bool:
        """Whether the topic is to be left alone for now."""
        trouble = self._topics.get(topic)
        return trouble is not None and now_s < trouble.again_s

    def is_due(self, now_s: float) -> bool:
        """Whether some topic is to be looked at again."""
        return any(trouble.again_s <= now_s for trouble in self._topics.values())

    def add(self, topic: str, message: str, now_s: float) -> bool:
        """It cannot go on; True when that is news. The pause until the next look doubles."""
        before = self._topics.get(topic)
        pause_s = FIRST_S if before is None else min(MOST_S, before.pause_s * 2)
        self._topics[topic] = _Trouble(message, now_s + pause_s, pause_s)
        return before is None or before.message != message

    def look_now(self, now_s: float) -> None:
        """Somebody says that it may be over."""
        for trouble in self._topics.values():
            trouble.again_s, trouble.pause_s = now_s, FIRST_S

    def gone(self, topic: str) -> None:
        """It goes on, or is not there any more."""
        self._topics.pop(topic, None)
