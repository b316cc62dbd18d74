"""Records and stamps of times when the clock was not trusted, over all starts. `ServerClock` decides it for one of them.

A plausible clock has reached the date of the version, and the time of the newest record of any log, less MAX_STEP_MS and, where
producers stamp, less the time that `message.timestamp.after.max.ms` lets a record be ahead. Records after LATEST_MS are no
evidence. If `clock.json` has an episode of an earlier start that has not ended, its floor counts in place of the records: the
server itself may have stamped them since.

When trust is lost, the records of every log from `Log.trusted_from` on are undated: from where the log ended when the clock was
last trusted, or at the start. Nothing is written while the clock stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

import attrs

from ...protocol.types import TimestampType
from ..config.version import VERSION_DATE
from ..storage.directory.clock_file import (
    CLOCK_FILE,
    MAX_EPISODES,
    UNREADABLE,
    ClockState,
    Episode,
    LogKey,
    decode_clock,
    encode_clock,
)
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.checkpoints import encode_uuid, maybe_read
from ..storage.disk.filesystem import replace_file
from ..storage.errors import CheckpointError
from ..storage.log.log import Log
from ..storage.segments.undated import Undated, UndatedRange, closed, opened
from ..system.clock import FOREVER_MS, MAX_STEP_MS, ServerClock
from .log_directories import LogDirectories
from .topics import HostedPartition, Topics

LOGGER: Final = logging.getLogger(__name__)

DAY_MS: Final = 86_400_000
EARLIEST_MS: Final = int(datetime.fromisoformat(VERSION_DATE).replace(tzinfo=UTC).timestamp()) * 1000 - DAY_MS
"""A day before the date of the version, which has no time zone."""
LATEST_MS: Final = EARLIEST_MS + 20 * 365 * DAY_MS
"""No version is in use for twenty years: a clock beyond is as wrong as one in 1970, and so is a record's timestamp."""


@attrs.define(eq=False, repr=False)
class UndatedRecords:
    """Owner of `clock.json` and of `Log.undated`. Owned by the log manager; its maintenance calls `look`."""

    directories: LogDirectories
    topics: Topics
    clock: ServerClock
    episodes: tuple[Episode, ...] = ()
    _suspended: tuple[int, int] | None = None
    """The floor and the begin of an episode that has not ended."""
    _absent: dict[LogKey, Undated] = attrs.field(factory=dict)
    """Of logs that are not served."""
    _since_ms: int = 0
    """The server's time when its clock was last trusted, or at the start."""
    _generation: int = 0
    _is_unwritten: bool = False

    async def begin(self) -> None:
        """Check the clock and mark what this start may append. All logs are open and no actor runs."""
        state = await self.directories.disk.call_briefly(self._read)
        self._generation, self.episodes, self._suspended = state.generation, state.episodes, state.suspended
        newest_ms, evidence = self._newest()
        floor_ms = max(EARLIEST_MS, newest_ms - MAX_STEP_MS)
        if state.suspended is not None and state is not UNREADABLE:
            floor_ms, evidence = max(EARLIEST_MS, state.suspended[0]), f"{CLOCK_FILE} of an earlier start"
        self._mark_logs(state)
        self.clock.begin(floor_ms, LATEST_MS, max(floor_ms, newest_ms), evidence)
        self._since_ms = self.clock.now_ms()
        if self.clock.is_trusted != (self._suspended is None):
            self._change()
        try:
            await self._maybe_write()
        except OSError as exc:
            LOGGER.error("cannot write %s, trying again: %s", CLOCK_FILE, exc)

    def _read(self) -> ClockState:
        found = [ClockState()]
        for directory in self.directories.live:
            path = f"{directory.path}/{CLOCK_FILE}"
            try:
                state = maybe_read(directory.fs, path, decode_clock)
            except (CheckpointError, OSError) as exc:
                LOGGER.warning("cannot read %s, treating all records as undated: %s", path, exc)
                state = UNREADABLE
            found += [] if state is None else [state]
        return max(found, key=lambda state: (state.generation, state is UNREADABLE))

    def _mark_logs(self, state: ClockState) -> None:
        ranges = state.ranges
        for key, hosted in self._logs():
            log = hosted.actor.log
            undated = ranges.get(key, ())
            if state.suspended is not None:
                undated = opened(undated, 0)
            # A power cut may have cut the log back below the mark.
            log.undated = tuple(
                each._replace(first_offset=min(each.first_offset, log.log_end_offset)) if each.is_open else each
                for each in undated
            )
            log.trusted_from = log.log_end_offset
        self._absent = dict(self._offline(ranges, is_open=state.suspended is not None))

    def _offline(self, ranges: Mapping[LogKey, Undated], *, is_open: bool) -> Iterator[tuple[LogKey, Undated]]:
        """Yield what is known of logs that cannot be served. `is_open`: the clock was not trusted before this start."""
        for hosted in self.topics:
            for number, partition in enumerate(hosted.partitions):
                key = encode_uuid(hosted.topic.topic_id), number
                undated = opened(ranges.get(key, ()), 0) if is_open else ranges.get(key, ())
                if not partition.has_actor and undated:
                    yield key, undated

    def _newest(self) -> tuple[int, str]:
        """Return a time that the clock had reached before this start, and the evidence."""
        newest_ms, evidence = EARLIEST_MS, f"the version of {VERSION_DATE}"
        for _, hosted in self._logs():
            log = hosted.actor.log
            newest = _newest_ms(log)
            if newest > newest_ms:
                newest_ms, evidence = newest, f"newest record of {log.topic_partition}"
        return newest_ms, evidence

    async def look(self) -> None:
        """Look at the clock, and mark what it changes. Raises an OSError that may pass: the file is written the next time."""
        was_trusted = self.clock.is_trusted
        self.clock.look()
        if self.clock.is_checked and self.clock.is_trusted != was_trusted:
            self._change()
        await self._maybe_write()

    def adopt(self, log: Log, before: Log | None) -> None:
        """Mark a log that is opened after the start, in place of `before` if that was served."""
        if before is not None:
            log.undated, log.trusted_from = before.undated, min(before.trusted_from, log.log_end_offset)
            return
        topic_partition = log.topic_partition
        topic_id = encode_uuid(self.topics.get(topic_partition.topic).topic.topic_id)
        log.undated = self._absent.pop((topic_id, topic_partition.partition), ())
        log.trusted_from = log.log_end_offset
        if self._suspended is not None:
            log.undated = opened(log.undated, log.trusted_from)

    def date(self, stamp_ms: int) -> int:
        """Return the time from which the age of something counts that the server stamped. FOREVER_MS: it has no age while the
        clock is not trusted."""
        if not self.clock.is_trusted:
            return FOREVER_MS
        return max((each.dated_ms for each in self.episodes if each.from_ms <= stamp_ms <= each.dated_ms), default=stamp_ms)

    def _change(self) -> None:
        """The clock has lost trust, or is trusted again."""
        now_ms, self._is_unwritten = self.clock.now_ms(), True
        if self._suspended is None:
            self._suspended = (self.clock.floor_ms, self._since_ms)
            for _, hosted in self._logs():
                log = hosted.actor.log
                log.undated = opened(log.undated, log.trusted_from)
            return
        from_ms, self._suspended, self._since_ms = self._suspended[1], None, now_ms
        if from_ms:
            self.episodes = (*self.episodes, Episode(min(from_ms, now_ms), now_ms))[-MAX_EPISODES:]
        for _, hosted in self._logs():
            log = hosted.actor.log
            # A log that was created meanwhile has no open range yet.
            log.undated = closed(opened(log.undated, log.trusted_from), log.log_end_offset, now_ms, log.log_start_offset)
            log.trusted_from = log.log_end_offset
        self._absent = {key: tuple(_dated(undated, now_ms)) for key, undated in self._absent.items()}

    async def _maybe_write(self) -> None:
        if self._is_unwritten:
            self._generation += 1
            ranges = self._absent | {key: hosted.actor.log.undated for key, hosted in self._logs()}
            state = ClockState(
                generation=self._generation,
                suspended=self._suspended,
                episodes=self.episodes,
                ranges={key: undated for key, undated in ranges.items() if undated},
            )
            self._is_unwritten = False
            try:
                await self.directories.write_each(partial(_write, encode_clock(state)))
            except BaseException:
                self._is_unwritten = True
                raise

    def _logs(self) -> Iterator[tuple[LogKey, HostedPartition]]:
        for hosted in self.topics.hosted():
            topic_partition = hosted.actor.topic_partition
            topic = self.topics.get(topic_partition.topic).topic
            yield (encode_uuid(topic.topic_id), topic_partition.partition), hosted


def _write(data: bytes, directory: LogDirectory) -> None:
    replace_file(directory.fs, f"{directory.path}/{CLOCK_FILE}", data, durable=directory.durable)


def _dated(undated: Undated, now_ms: int) -> Iterator[UndatedRange]:
    for each in undated:
        yield each._replace(dated_ms=now_ms) if each.is_open else each


def _newest_ms(log: Log) -> int:
    """Return a time that the clock had reached when the newest record was appended."""
    config = log.config
    is_stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    ahead_ms = 0 if is_stamped else config.message_timestamp_after_max_ms
    return max((each.max_timestamp for each in log.segments if each.max_timestamp <= LATEST_MS), default=-1) - ahead_ms
