"""Giving a log another configuration while it is served. Files keep what they were made with: index sizes and the jitter of
segment.ms change with the next segment."""

from __future__ import annotations

from ...config import LogConfig
from ..disk.diskops import Procedure, Truncate
from .log import Log


def reconfigure(log: Log, *, config: LogConfig) -> Procedure[None]:
    """From here on the log follows `config`.

    A changed `durability` forces what was written before to the device, so that it holds for all of the log. Without
    `preallocate` nobody would cut the active segment's preallocated rest off later, so that is done here.
    """
    before = log.config
    if before.preallocate and not config.preallocate:
        yield Truncate(log.active.log, log.active.size)
    log.config = config
    for segment in log.segments:
        segment.config = config
    log.changed()
    if config.durability != before.durability and log.sync_metadata:
        plan = log.plan_flush()
        yield from plan.operations
        log.commit_flush(plan)
