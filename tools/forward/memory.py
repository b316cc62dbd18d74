"""What a link knows from one session to the next."""

from __future__ import annotations

from typing import Any

import attrs

from ...protocol.types import TopicPartition
from .pacing.caution import Caution
from .pacing.rate import RateCap
from .pacing.stretch import StretchSize
from .progress import LinkProgress
from .settings.link_settings import Delivery, LinkSettings
from .source.source import Source
from .topic_ids import TopicIds
from .troubles import Troubles
from .upstream.connection import BATCH_BYTES
from .wishes import Wishes

GROUP: str = "triolog-forward.{node}.{link}"
"""The group whose offsets say how far a link is, here and upstream, and the transactional id."""


@attrs.define(eq=False, repr=False, kw_only=True)
class LinkMemory:
    """Owner: the link's thread; `wishes` and `progress` belong to everybody."""

    settings: LinkSettings
    node: str
    source: Source
    wishes: Wishes
    progress: LinkProgress
    claims: Any
    """Which link of this process sends to which topic upstream."""
    size: StretchSize
    topic_ids: TopicIds = attrs.field(factory=TopicIds)
    """Of the topics that were forwarded."""
    caution: Caution = attrs.field(factory=Caution)
    troubles: Troubles = attrs.field(factory=Troubles)
    cap: RateCap | None = None
    batch_bytes: int = BATCH_BYTES
    refused: dict[TopicPartition, dict[int, str]] = attrs.field(factory=dict)
    """Records that the upstream does not take, and why."""
    begun: dict[TopicPartition, int | None] = attrs.field(factory=dict)
    """Where partitions began of which nothing was noted; None for those of which something was."""

    @property
    def group(self) -> str:
        return GROUP.format(node=self.node, link=self.settings.name)

    @property
    def is_exactly_once(self) -> bool:
        return self.settings.delivery is Delivery.EXACTLY_ONCE

    def publish_troubles(self) -> None:
        """Let people see them."""
        self.progress.troubled(self.troubles.messages)
