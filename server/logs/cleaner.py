"""Compacting logs while the server runs (Kafka: LogCleaner, LogCleanerManager). One log at a time, by a process of its own.

The dirtiest log that is due comes first, those whose last rounds failed come last. The process reads inactive segments and
writes `.cleaned` files; the log's actor puts them in place, group by group, between two groups of appends. Then the log
directory's checkpoint moves on.

| what goes wrong | what happens |
|---|---|
| topic deleted or configured anew, log cut back, segments expired | the round is given up, without a word |
| the disk is full, or refuses otherwise; the process is killed | said, and tried again after `cleaner_backoff_ms` |
| damage, a bug, the process dies again and again | said, with the next step; the partition is left alone until the next start |
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.types import NO_TIMESTAMP, TopicPartition
from ..loop.procedures import in_turns
from ..storage.cleaner.job import CleaningJob, CleaningResult
from ..storage.cleaner.selection import LogToClean, choose, cleanable_offsets, plan_round
from ..storage.cleaner.swap import SegmentsChangedError, discard_cleaned, replace_group
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.checkpoints import read_cleaner_offsets, write_cleaner_offsets
from ..storage.errors import LogOfflineError, SnapshotExpiredError
from ..storage.log.log import Log
from .cleaner_process import ChildDiedError, CleanerCounters, CleanerFailedError, OpenChild, open_cleaner_process
from .log_manager import LogManager
from .log_retention import LOOKS_PER_TURN
from .topics import HostedPartition

LOGGER: Final = logging.getLogger(__name__)

MOST_DEATHS: Final = 3
"""Times that a log's process died since the last round that went well: then it does not die by chance."""


class _Candidate(NamedTuple):
    hosted: HostedPartition
    chosen: LogToClean
    truncations: int
    """Of the log, when it was looked at."""


@attrs.define(eq=False, repr=False)
class Cleaner:
    """State of the cleaner: what is clean, and what is left alone. Owner: `Compaction`."""

    manager: LogManager
    open_child: OpenChild
    counters: CleanerCounters = attrs.field(factory=CleanerCounters)
    clean_up_to: dict[Log, int] = attrs.field(factory=dict)
    """First dirty offset by log. By log, because a topic can be deleted and made again."""
    uncleanable: dict[Log, str] = attrs.field(factory=dict)
    """Why a log is left alone."""
    _failures: dict[Log, int] = attrs.field(factory=dict)
    """Rounds of any kind that did not end well, since the last one that did: such logs come last."""
    _deaths: dict[Log, int] = attrs.field(factory=dict)
    """Of these, how often the process died."""
    _written: dict[str, dict[TopicPartition, int]] = attrs.field(factory=dict)
    """What the checkpoint of each log directory says."""

    async def load(self) -> None:
        """Take over what the checkpoints say of the logs that are there."""
        for directory in self.manager.log_directories.live:
            offsets = await self.manager.disk.call(read_cleaner_offsets, self.manager.disk.fs, directory.path)
            self._written[directory.path] = offsets
            for hosted in self.manager.topics.hosted():
                offset = offsets.get(hosted.actor.topic_partition)
                if hosted.directory is directory and offset is not None:
                    self.clean_up_to[hosted.actor.log] = offset

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False when none does, or when it could not be done now."""
        self._forget_gone()
        candidate = await self._find_dirtiest()
        if candidate is None:
            return False
        log = candidate.hosted.actor.log
        try:
            return await self._clean(candidate)
        except OSError:
            raise
        except Exception as exc:
            self._failures[log] = self._failures.get(log, 0) + 1
            self.manager.disk.errors.note("compaction", log.topic_partition, exc)
            return False

    async def clean(self, hosted: HostedPartition) -> bool | None:
        """Clean one log, however little of it is dirty; None when nothing is, False when it could not be done."""
        log = hosted.actor.log
        if log.refusal is not None:
            raise log.refusal.as_answer()
        if log in self.uncleanable:
            raise LogOfflineError(f"compaction of {log.topic_partition} is off until the next start: {self.uncleanable[log]}")
        truncations, now_ms = log.truncations, self.manager.now_ms()
        self._reset_if_outside(log, now_ms)
        chosen = await self.manager.disk.read(choose(log, self.clean_up_to.get(log), now_ms))
        return await self._clean(_Candidate(hosted, chosen, truncations)) if chosen.cleanable_bytes else None

    def _forget_gone(self) -> None:
        logs = {hosted.actor.log for hosted in self.manager.topics.hosted()}
        for known in (self.clean_up_to, self.uncleanable, self._failures, self._deaths):
            for log in [log for log in known if log not in logs]:
                del known[log]
        self.counters.uncleanable = len(self.uncleanable)

    async def _find_dirtiest(self) -> _Candidate | None:
        found: _Candidate | None = None
        async for hosted in in_turns(self.manager.topics.hosted(), LOOKS_PER_TURN):
            with self.manager.disk.errors.isolate("compaction", hosted.actor.topic_partition):
                candidate = await self._candidate(hosted)
                if candidate is not None and (found is None or self._rank(candidate) < self._rank(found)):
                    found = candidate
        return found

    async def _candidate(self, hosted: HostedPartition) -> _Candidate | None:
        """A log that is due; else None."""
        log = hosted.actor.log
        if "compact" not in log.config.cleanup_policy or log.refusal is not None or log in self.uncleanable:
            return None
        truncations, now_ms = log.truncations, self.manager.now_ms()
        self._reset_if_outside(log, now_ms)
        try:
            chosen = await self.manager.disk.read(choose(log, self.clean_up_to.get(log), now_ms))
        except (SnapshotExpiredError, RequestError, OSError) as exc:
            LOGGER.debug("compaction skips %s this time: %s", log.topic_partition, exc)
            return None
        return _Candidate(hosted, chosen, truncations) if chosen.is_due(log.config.min_cleanable_dirty_ratio) else None

    def _rank(self, candidate: _Candidate) -> tuple[int, float]:
        """The least comes first. One that fails again and again must not keep the others waiting."""
        return self._failures.get(candidate.hosted.actor.log, 0), -candidate.chosen.dirty_ratio

    def _reset_if_outside(self, log: Log, now_ms: int) -> None:
        checkpoint = self.clean_up_to.get(log)
        if checkpoint is None or not cleanable_offsets(log, checkpoint, now_ms).is_reset:
            return
        if "delete" not in log.config.cleanup_policy or checkpoint > log.log_end_offset:
            LOGGER.warning(
                "%s: compaction had reached offset %d, but the log is %d to %d: treating it as not compacted",
                log.topic_partition,
                checkpoint,
                log.log_start_offset,
                log.log_end_offset,
            )
        self.clean_up_to[log] = log.log_start_offset

    async def _clean(self, candidate: _Candidate) -> bool:
        log = candidate.hosted.actor.log
        config = self.manager.config
        job = plan_round(
            log,
            candidate.chosen,
            self.manager.now_ms() if self.manager.clock.is_trusted else NO_TIMESTAMP,
            map_bytes=config.cleaner_dedupe_buffer_bytes,
            max_bytes_per_second=config.cleaner_io_max_bytes_per_second,
        )
        started, size = trio.current_time(), log.size_in_bytes
        self.counters.cleaning = str(log.topic_partition)
        try:
            result = await self._run_round(candidate, job)
        except (SegmentsChangedError, RequestError) as exc:
            self.counters.given_up += 1
            LOGGER.info("compaction of %s abandoned: %s", log.topic_partition, exc)
            return False
        except (CleanerFailedError, ChildDiedError) as exc:
            self._note_failure(log, exc)
            return False
        finally:
            self.counters.cleaning = None
            with trio.CancelScope(shield=True), contextlib.suppress(OSError):
                await self.manager.disk.call(discard_cleaned, self.manager.disk.fs, job.directory, at=job.directory)
        self._failures.pop(log, None)
        self._deaths.pop(log, None)
        LOGGER.info(
            "%s compacted up to offset %d: from %d to %d bytes in %.1f s, %d keys",
            log.topic_partition,
            result.next_dirty_offset,
            size,
            log.size_in_bytes,
            trio.current_time() - started,
            result.keys,
        )
        self.counters.done(size, log.size_in_bytes, trio.current_time() - started)
        self.clean_up_to[log] = result.next_dirty_offset
        await self._write_checkpoint(candidate.hosted.directory)
        return True

    async def _run_round(self, candidate: _Candidate, job: CleaningJob) -> CleaningResult:
        truncations = candidate.truncations
        async with open_cleaner_process(job, self.open_child, self.manager.config.data_permissions) as process:
            while not isinstance(done := await process.next(), CleaningResult):
                if done.cleaned is not None:
                    replace = partial(replace_group, job=job, group=done, truncations=truncations)
                    with trio.CancelScope(shield=True):
                        # Once it is enqueued it happens, whoever is cancelled, and needs the files that are discarded later.
                        truncations = await candidate.hosted.actor.perform(replace)
                await process.go_on()
            return done

    def _note_failure(self, log: Log, error: CleanerFailedError | ChildDiedError) -> None:
        self.counters.failed += 1
        self._failures[log] = self._failures.get(log, 0) + 1
        deaths = self._deaths[log] = self._deaths.get(log, 0) + (error.kind == "died")
        if error.kind == "gone":
            LOGGER.info("compaction of %s abandoned: %s", log.topic_partition, error)
        elif error.kind == "disk" or (error.kind == "died" and deaths < MOST_DEATHS):
            LOGGER.warning("compaction of %s failed, trying again: %s", log.topic_partition, error)
        else:
            self.uncleanable[log] = str(error)
            self.counters.uncleanable = len(self.uncleanable)
            advice = "Check it with `triolog verify`. To repair it, stop the server and run `triolog repair`"
            LOGGER.error(
                "compaction of %s is off until the next start: %s%s",
                log.topic_partition,
                error,
                f". {advice}" if error.kind == "damage" else "",
            )

    async def _write_checkpoint(self, directory: LogDirectory) -> None:
        async with self.manager.log_directories.writing_checkpoints(directory):
            offsets = {
                hosted.actor.topic_partition: self.clean_up_to[hosted.actor.log]
                for hosted in self.manager.topics.hosted()
                if hosted.directory is directory and hosted.actor.log in self.clean_up_to
            }
            if offsets != self._written.get(directory.path):
                write = partial(
                    write_cleaner_offsets, self.manager.disk.fs, directory.path, offsets, durable=self.manager.config.durable
                )
                await self.manager.disk.call(write, at=directory.path)
                self._written[directory.path] = offsets
