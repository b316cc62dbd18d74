"""The state that a link keeps from one session to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...protocol.types import TopicPartition
from .pacing.stretch import StretchSize
from .progress import LinkProgress
from .settings.link_settings import Delivery, LinkSettings
from .source.source import Source
from .topic_ids import TopicIds
from .upstream.connection import BATCH_BYTES
from .wishes import Wishes

FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 600.0


@attrs.define
class _Trouble:
    message: str
    again_s: float
    pause_s: float


class Troubles:
    """Topics of a link that cannot go on, why, and when it is looked at them again, in monotonic seconds. Owner: the link, so
    that a new connection does not run into the same again at once."""

    def __init__(self) -> None:
        self._topics: dict[str, _Trouble] = {}

    @property
    def messages(self) -> Mapping[str, str]:
        return {topic: trouble.message for topic, trouble in self._topics.items()}

    def blocks(self, topic: str, now_s: float) -> bool:
        """Return whether the link has to leave the topic alone for now."""
        trouble = self._topics.get(topic)
        return trouble is not None and now_s < trouble.again_s

    def is_due(self, now_s: float) -> bool:
        """Return whether some stopped topic is due for another check."""
        return any(trouble.again_s <= now_s for trouble in self._topics.values())

    def add(self, topic: str, message: str, now_s: float) -> bool:
        """It cannot go on; True when that is news. The pause until the next look doubles."""
        before = self._topics.get(topic)
        pause_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, before.pause_s * 2)
        self._topics[topic] = _Trouble(message, now_s + pause_s, pause_s)
        return before is None or before.message != message

    def look_now(self, now_s: float) -> None:
        """Somebody says that it may be over."""
        for trouble in self._topics.values():
            trouble.again_s, trouble.pause_s = now_s, FIRST_PAUSE_S

    def gone(self, topic: str) -> None:
        """It goes on, or is not there any more."""
        self._topics.pop(topic, None)


BURST_S: Final = 0.2
"""What may go at once, in time at the rate: records that go one by one would be batches of one."""


class RateCap:
    """A cap on bytes a second, kept on the average: what is sent at once is paid for before more may follow.

    Virtual scheduling (the generic cell rate algorithm of ATM): one number, the time at which everything sent so far is paid
    for. Asked before a record, told after it. Owner: the link.
    """

    __slots__ = ("_bytes_per_second", "_paid_s")

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._paid_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Return the seconds to wait before the next record; 0: it may go."""
        owed_s = self._paid_s - now_s
        return owed_s if owed_s > BURST_S else 0.0

    def sent(self, size: int, now_s: float) -> None:
        """So many bytes have gone."""
        self._paid_s = max(self._paid_s, now_s) + size / self._bytes_per_second


NO_LIMIT: Final = 2**62
CAREFUL_RECORDS: Final = 1024
"""As many records in a row without a refusal, and a partition is trusted again."""

CUT: Final = 8


class Caution:
    """The largest number of a partition's records that may go together, to find the one that an upstream refuses among many.

    Errors are answered for a batch. After a refusal the partition's next stretch has an eighth of the records, and so on down
    to one: if that is refused it is the one. What goes well meanwhile is committed, and the stretches grow again. A refusal
    costs a session, which takes longer than eight commits do. Owner: the link.
    """

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[str, int], int] = {}

    def limit(self, partition: tuple[str, int]) -> int:
        return self._limits.get(partition, NO_LIMIT)

    def is_careful(self, partition: tuple[str, int]) -> bool:
        return partition in self._limits

    def refused(self, partition: tuple[str, int], sent: int) -> bool:
        """Some of `sent` records were; True when that is one record, which it must have been."""
        self._limits[partition] = max(1, min(sent, CAREFUL_RECORDS) // CUT)
        return sent == 1

    def accepted(self, partition: tuple[str, int], sent: int) -> None:
        """So many were taken."""
        limit = self._limits.get(partition)
        if limit is None or sent < limit:
            return
        if limit * 2 > CAREFUL_RECORDS:
            del self._limits[partition]
        else:
            self._limits[partition] = limit * 2


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
