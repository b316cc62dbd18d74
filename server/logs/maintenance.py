"""Periodic maintenance tasks.

| what | how often |
|---|---|
| checkpoints | `checkpoint_interval_ms` |
| retention | `retention_check_interval_ms`, first after 30 s or that, whichever is less |
| producers whose ids expired | 10 minutes |
| unlinking removed files, the space on the disks, logs that wait for space | one second; the space also on request |
| directories of logs that went offline, the clock | one second |

Forgetting producers that have not appended for `producer_id_expiration_ms` (Kafka: PeriodicProducerExpirationCheck).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from ...protocol.errors import RequestError
from ..config.broker_config import BrokerConfig
from ..partitions.task_errors import TaskErrors
from ..storage.disk.diskops import Procedure
from ..storage.log.log import Log
from ..system.clock import ClockWatch, NowMs
from .log_manager import LogManager
from .topics import Topics

LOGGER: Final = logging.getLogger(__name__)

TICK_S: Final = 1.0
FIRST_RETENTION_S: Final = 30.0
"""Kafka's log.initial.task.delay.ms: whoever started with a wrong clock or configuration has that long to stop."""
PRODUCER_CHECK_S: Final = 600.0


@attrs.define(eq=False, repr=False)
class _Job:
    """Something that is due again and again."""

    name: str
    run: Callable[[], Awaitable[object]]
    errors: TaskErrors
    interval_s: float
    due_s: float

    async def repeat(self) -> None:
        """Until cancelled. In a task of its own: deleting many segments must not hold up the guard of the disk."""
        while True:
            await trio.sleep_until(self.due_s)
            with self.errors.isolate("maintenance", self.name):
                try:
                    await self.run()
                except OSError as exc:
                    LOGGER.error("maintenance failed and is tried again: %s", exc)
            self.due_s = trio.current_time() + self.interval_s


async def run_maintenance(manager: LogManager, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Until cancelled; started once it is known what room the disks have. What the disk refuses for now is said and tried
    again, and so is what a job did not expect; a directory that fails for good is taken out of service, and without any left
    LogDirectoryError ends the server."""
    config, watch = manager.config, ClockWatch(manager.now_ms)
    checkpoint_s, retention_s = config.checkpoint_interval_ms / 1000, config.retention_check_interval_ms / 1000
    tick_s = min(TICK_S, checkpoint_s, retention_s)
    first_retention_s = min(retention_s, FIRST_RETENTION_S)

    async def retain() -> None:
        watch.look()
        await manager.retention.run_pass(by_time=watch.is_trusted)

    async def look_at_clock() -> None:
        watch.look()
        manager.retention.trusts_clock = watch.is_trusted

    async def forget_producers() -> None:
        await expire_producers(manager.topics, manager.now_ms, config, manager.disk.errors)

    def job(name: str, run: Callable[[], Awaitable[object]], interval_s: float, first_s: float | None = None) -> _Job:
        due_s = trio.current_time() + (interval_s if first_s is None else first_s)
        return _Job(name, run, manager.disk.errors, interval_s, due_s)

    jobs = (
        job("clock", look_at_clock, tick_s),
        job("probe", manager.log_directories.probe, tick_s),
        job("deletion", manager.delete_doomed, tick_s),
        job("disk-guard", manager.guard.check, tick_s),
        job("waiting-logs", manager.waiting.check, tick_s),
        job("outgrown-logs", manager.retention.run_outgrown, tick_s),
        job("retention", retain, retention_s, first_retention_s),
        job("producer-expiry", forget_producers, PRODUCER_CHECK_S),
        job("checkpoints", manager.write_checkpoints, checkpoint_s),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(manager.guard.watch)
        task_status.started()
        for each in jobs:
            nursery.start_soon(each.repeat)


LOGS_PER_TURN: Final = 32


async def expire_producers(topics: Topics, now_ms: NowMs, config: BrokerConfig, errors: TaskErrors) -> None:
    """In every log's turn; a log without producers is left alone."""

    def expire(log: Log) -> Procedure[int]:
        yield from ()
        return log.producers.expire(now_ms(), config.producer_id_expiration_ms)

    for number, hosted in enumerate(topics.hosted()):
        if number % LOGS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        if hosted.actor.log.producers.entries and hosted.actor.log.refusal is None:
            with errors.isolate("producer-expiry", hosted.actor.topic_partition), contextlib.suppress(RequestError):
                await hosted.actor.perform(expire)
