"""The names that the lives of one topic have in a history, by topic id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition

LIVING: Final = "living"
"""The topic that is deleted and created again under its clients."""


@attrs.define(eq=False)
class TopicLives:
    """Owner: the world."""

    began: Callable[[str, Mapping[str, str]], None]
    """Told of the name and the configuration of a life when somebody sees it for the first time."""
    config: Mapping[str, str] = attrs.field(factory=dict)
    """With which it is created next, or was created last."""
    partitions: Sequence[TopicPartition] = ()
    """Those of this life, until its deletion is answered."""
    _names: dict[bytes, str] = attrs.field(factory=dict)

    def name(self, topic_id: bytes) -> str:
        name = self._names.get(topic_id)
        if name is None:
            name = self._names[topic_id] = f"{LIVING}~{len(self._names)}"
            self.began(name, self.config)
        return name
