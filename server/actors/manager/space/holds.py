"""Who holds what of the logs: the groups of `retention.hold.groups`, with what they have committed.

Committed offsets are the group coordinator's, which stands above the logs. It publishes a look at them, `committed`: a plain
function that reads memory, so nobody waits for it, and it changes nothing. A log is held from the smallest offset that one of
its groups has committed, from its start if one has committed nothing. Until the look is published (the coordinators' logs are
being read) nobody judges, and logs with such groups are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from .....protocol.errors import ErrorCode, RequestError
from .....protocol.types import TopicPartition
from ....config import DiskFullPolicy
from ....storage.disk.paths import is_internal
from ....storage.log.derived_files import Dropped
from ....storage.log.log import Log
from ....storage.log.retention import NOTHING_HELD, is_past_bounds, is_wanted

LOGGER: Final = logging.getLogger(__name__)

CommittedOffset = Callable[[str, TopicPartition], int | None]
"""(group, partition) -> what it has committed, None: nothing, or nobody can tell."""


@attrs.define(eq=False, repr=False)
class Holds:
    """See the module. Owned by the log manager; keeps nothing of what it asks."""

    committed: CommittedOffset | None = None
    """Set by the coordinators once they are loaded."""

    def may_judge(self, log: Log) -> bool:
        """Whether it is known who holds the log."""
        return self.committed is not None or not log.config.retention_hold_groups

    def held_from(self, log: Log) -> int:
        """The first offset that one of the log's groups needs; NOTHING_HELD without such groups."""
        groups = log.config.retention_hold_groups
        if not groups or is_internal(log.topic_partition.topic):
            return NOTHING_HELD
        assert self.committed is not None, "may_judge"
        return min(self.committed(group, log.topic_partition) or 0 for group in groups)

    def refusal(self, log: Log, now_ms: int, *, by_time: bool) -> RequestError | None:
        """Why no more is appended to a log whose policy is `refuse`: retention is to take what a group holds, and the hold is
        at its bounds."""
        config = log.config
        if not config.retention_hold_groups or config.disk_full_policy is not DiskFullPolicy.REFUSE:
            return None
        if config.retention_hold_max_bytes < 0 and config.retention_hold_max_ms < 0:
            return None
        if not self.may_judge(log) or is_internal(log.topic_partition.topic) or not is_wanted(log, now_ms, by_time=by_time):
            return None
        held_from = self.held_from(log)
        if not is_past_bounds(log, held_from, now_ms, by_time=by_time):
            return None
        return RequestError(
            f"{log.topic_partition}: {', '.join(self.behind(log, held_from))} of retention.hold.groups has committed offset "
            f"{held_from}, and what is held since is at retention.hold.max.bytes={config.retention_hold_max_bytes} or "
            f"retention.hold.max.ms={config.retention_hold_max_ms}; nothing of the append is stored; let the group go on, or "
            "set disk.full.policy=drop-oldest for the topic",
            ErrorCode.POLICY_VIOLATION,
        )

    def behind(self, log: Log, held_from: int) -> Iterable[str]:
        """The groups that hold a log from there on."""
        committed = self.committed
        assert committed is not None
        groups = log.config.retention_hold_groups
        return [group for group in groups if (committed(group, log.topic_partition) or 0) == held_from]


def say_dropped(log: Log, before: Dropped) -> None:
    """One line for what went since, though it was held."""
    dropped = log.derived.dropped
    if dropped != before:
        LOGGER.warning(
            "%s: %d records (%d bytes) at offsets %d to %d were dropped, which not all of "
            "retention.hold.groups=%s had committed; that makes %d records since the log was made",
            log.topic_partition,
            dropped.records - before.records,
            dropped.size_bytes - before.size_bytes,
            dropped.first_offset,
            dropped.end_offset - 1,
            ",".join(log.config.retention_hold_groups),
            dropped.records,
        )
