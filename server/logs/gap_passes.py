"""The offsets that damage took out of logs, as people see them, and how they are accepted.

Who has passed over offsets that damage took out of logs, and who stands before them: told once, and counted.

A fetch says which client reads and nothing of its group, and Kafka's clients ask their coordinator over another connection than
the one they fetch from. So a pass over a range is told and counted for

| whom | when |
|---|---|
| a client, by client id and host | a fetch of it was answered with what lies behind the range |
| a share group | a member of it was given what lies behind the range: its fetch names the group |
| any other group | it commits an offset behind the range, and had committed one before the end of the range |

Of a group that commits for the first time nobody knows where it began, so nothing is counted for it. Who is told already is
remembered for the last 10,000 pairs of a range and a reader; what is forgotten is told, and counted, again.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import attrs

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.types import TopicPartition
from ..storage.disk.diskops import FileSize, Procedure
from ..storage.errors import OffsetInGapError
from ..storage.log.changes import accept_gap
from ..storage.log.gaps import NO_FILE, OffsetGap
from ..system.client_memory import MAX_NAME_CHARS, shortened
from .topics import OfflinePartition, Topics

LOGGER: Final = logging.getLogger(__name__)


@attrs.frozen
class ListedGap:
    """A gap, and how large the file is that keeps what was found there; None: there is none."""

    gap: OffsetGap
    size_bytes: int | None


@attrs.frozen
class PartitionGaps:
    """The gaps of one partition that readers can come to; or why they are not known."""

    topic_partition: TopicPartition
    gaps: tuple[ListedGap, ...] = ()
    error: RequestError | None = None


@attrs.frozen(eq=False, repr=False)
class Gaps:
    """See the module. It owns nothing; who has passed over gaps is in `passes`."""

    _topics: Topics
    passes: GapPasses

    async def of(self, topic: str) -> list[PartitionGaps]:
        """Every partition of a topic that has gaps, or of which that is not known. Raises UnknownTopicOrPartitionError."""
        found = []
        for number, hosted in enumerate(list(self._topics.get(topic).partitions)):
            topic_partition = TopicPartition(topic, number)
            error = hosted.error if isinstance(hosted, OfflinePartition) else hosted.actor.log.offline
            if error is not None:
                found.append(PartitionGaps(topic_partition, error=error.as_answer()))
            elif not isinstance(hosted, OfflinePartition) and hosted.actor.log.gaps:
                log = hosted.actor.log
                gaps = [gap for gap in log.gaps if gap.end_offset > log.log_start_offset]
                sizes = await hosted.actor.disk.drive(_sizes(log.directory, gaps), log.directory)
                if gaps:
                    found.append(PartitionGaps(topic_partition, tuple(map(ListedGap, gaps, sizes))))
        return found

    async def accept(self, topic_partition: TopicPartition, start_offset: int) -> OffsetGap:
        """Let readers pass over the gap that starts there, whatever the topic's gap.policy is; on the device when this returns.
        Raises RequestError."""
        actor = self._topics.actor(topic_partition)
        try:
            gap = await actor.perform(partial(accept_gap, start_offset=start_offset))
        except RequestError as exc:
            raise RequestError(f"{topic_partition}: {exc.message}", exc.code) from exc
        if isinstance(gap, OSError):
            raise RequestError(
                f"{topic_partition}: could not store that the gap at offset {start_offset} is accepted: {gap}. Free "
                "space or check the device, then try again",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        LOGGER.info("%s: gap %s accepted: readers will skip it", topic_partition, gap)
        return gap


def _sizes(directory: str, gaps: Sequence[OffsetGap]) -> Procedure[list[int | None]]:
    """Of the files that keep what was found there."""
    sizes: list[int | None] = []
    for gap in gaps:
        size: int | None = None
        if gap.file != NO_FILE:
            try:
                size = yield FileSize(f"{directory}/{gap.file}")
            except OSError:
                size = None
        sizes.append(size)
    return sizes


MAX_REMEMBERED: Final = 10_000
MAX_GROUPS: Final = 1_000
"""Pairs of a group and a topic that are counted; those that come later, or have a name above MAX_NAME_CHARS, are not."""


@attrs.frozen
class GapCounts:
    """Since the start; a range counts once for each reader."""

    passed: dict[str, int]
    """By topic: ranges that clients have passed over."""
    refused: dict[str, int]
    """By topic: ranges that clients were refused to pass over."""
    groups: dict[tuple[str, str], int]
    """By group and topic: ranges that groups have passed over."""


@attrs.define(eq=False, repr=False)
class GapPasses:
    """See the module. Owner: the log manager; called from any task of the trio thread."""

    _topics: Topics
    _passed: Counter[str] = attrs.field(factory=Counter)
    _refused: Counter[str] = attrs.field(factory=Counter)
    _groups: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    _told: OrderedDict[tuple[str, str, uuid.UUID | None, TopicPartition, int], None] = attrs.field(factory=OrderedDict)
    """With the topic's id: the gaps of another topic of that name are other gaps."""

    def counts(self) -> GapCounts:
        """As they are now."""
        return GapCounts(dict(self._passed), dict(self._refused), dict(self._groups))

    def passed(self, client: str, topic_partition: TopicPartition, gaps: Iterable[OffsetGap]) -> None:
        """A client was answered with records behind these gaps."""
        for gap in gaps:
            if self._is_new("passed", client, topic_partition, gap.start_offset):
                self._passed[topic_partition.topic] += 1
                level = logging.INFO if gap.is_accepted else logging.WARNING
                LOGGER.log(level, "%s: %s skips gap %s, which was lost to corruption", topic_partition, client, gap)

    def refused(self, client: str, error: OffsetInGapError) -> None:
        """A client was answered with this error. Kafka's fetch has no room for its words."""
        if self._is_new("refused", client, error.topic_partition, error.offsets[0]):
            self._refused[error.topic_partition.topic] += 1
            LOGGER.warning("%s is refused at a gap, and retries: %s", client, error.message)

    def shared(self, group: str, topic_partition: TopicPartition, gaps: Iterable[OffsetGap]) -> None:
        """A member of a share group was given records behind these gaps."""
        for gap in gaps:
            if self._count_group(group, topic_partition, gap):
                self._passed[topic_partition.topic] += 1
                level = logging.INFO if gap.is_accepted else logging.WARNING
                LOGGER.log(level, "%s: share group %r skips gap %s, which was lost to corruption", topic_partition, group, gap)

    def committed(self, group: str, topic_partition: TopicPartition, before: int, offset: int) -> None:
        """A group has committed `offset`, and had committed `before`."""
        if offset <= before:
            return
        try:
            gaps = self._topics.actor(topic_partition).log.gaps
        except RequestError:
            return
        for gap in gaps:
            if before < gap.end_offset <= offset and self._count_group(group, topic_partition, gap):
                level = logging.INFO if gap.is_accepted else logging.WARNING
                text = "%s: group %r committed offset %d, after gap %s, which was lost to corruption"
                LOGGER.log(level, text, topic_partition, group, offset, gap)

    def _count_group(self, group: str, topic_partition: TopicPartition, gap: OffsetGap) -> bool:
        """Count a group that passes a gap; return whether it was not counted before."""
        if not self._is_new("group", group, topic_partition, gap.start_offset):
            return False
        key = group, topic_partition.topic
        if len(group) <= MAX_NAME_CHARS and (key in self._groups or len(self._groups) < MAX_GROUPS):
            self._groups[key] += 1
        return True

    def _is_new(self, what: str, who: str, topic_partition: TopicPartition, start_offset: int) -> bool:
        name = topic_partition.topic
        topic_id = self._topics.get(name).topic.topic_id if name in self._topics else None
        key = what, shortened(who), topic_id, topic_partition, start_offset
        is_new = key not in self._told
        self._told[key] = None
        self._told.move_to_end(key)
        if len(self._told) > MAX_REMEMBERED:
            self._told.popitem(last=False)
        return is_new
