"""The offsets that damage took out of logs, as people see them, and how they are accepted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs

from .....protocol.errors import ErrorCode, RequestError
from .....protocol.types import TopicPartition
from ....storage.disk.diskops import Procedure
from ....storage.disk.path_ops import FileSize
from ....storage.log.changes import accept_gap
from ....storage.log.gaps import NO_FILE, OffsetGap
from ..topics import OfflinePartition, Topics
from .passes import GapPasses

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
                f"{topic_partition}: it could not be written down that offset {start_offset} is accepted: {gap}; free space or "
                "check the device, then try again",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        LOGGER.info("%s: it is accepted that %s are missing: readers pass over them", topic_partition, gap)
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
