"""Copies the topics of one source: finds them, makes the mirrors agree with it, and copies round by round.

A round reads where all partitions of the source end, and copies up to there. Then the long poll of a fetch waits for news. The
source of a round with one broker and the coordinators' topics becomes the newest *cut* (see `server.broker.mirroring`).

Agreeing, at the start of a connection: the mirror's newest leader epoch ends at the source at some offset, and records of the
mirror after it are set aside (KIP-101, KIP-320). Then the newest batches are compared: a source that has lost unsynced records
in a power cut has others at their offsets, in the same epoch.

A partition that fails (a full disk, a corrupt batch) waits PARTITION_PAUSE_S and does not stop the others; there is no cut
meanwhile.
"""

from __future__ import annotations

import enum
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.kafka.messages.records import FetchPartitionData
from ...protocol.records.batch import BatchHeader, iter_batches
from ...protocol.types import TopicPartition
from ...server.broker import Broker
from ...server.broker.mirroring import MirrorProgress, Promotion, SetAside
from ...server.logs.reader import ENDS_AT_ONE_MOMENT
from ...server.offsets.committed_offsets import Commit
from ...server.storage.disk.paths import is_internal
from ...server.storage.errors import StorageError
from ..client.backoff import Backoff
from ..forward.errors import SettingsError
from .settings import MirrorSettings
from .source import Source, SourceError, SourceTopic, named

LOGGER: Final = logging.getLogger(__name__)

CUT_S: Final = 0.1
"""Between two cuts, each of which costs a list of the source's topics."""
DISCOVERY_S: Final = 2.0
"""Between two looks for topics, partitions and configurations."""
OFFSETS_S: Final = 2.0
"""Between two copies of committed offsets."""
LONG_POLL_MS: Final = 500
LONG_POLL_OF_MANY_MS: Final = 100
"""Of several brokers: the data of one waits for the others."""
SETTLE_S: Final = 5.0
SETTLE_POLL_S: Final = 0.02
PAUSES_MS: Final = (100, 10_000)
PARTITION_PAUSE_S: Final = 5.0
UNREADABLE: Final = "the source cannot read it now"
APPENDS_AT_ONCE: Final = 16
MAX_TROUBLES: Final = 100
MAX_SET_ASIDE: Final = 1000
"""Shown; the log lines have all."""


class MirrorState(enum.Enum):
    """The state of a link."""

    CONNECTING = "connecting"
    COPYING = "copying"
    STOPPED = "stopped"
    PROMOTED = "promoted"


class LinkEndedError(Exception):
    """The link cannot copy anything until somebody changes the configuration."""


@attrs.define(eq=False, repr=False)
class MirrorLink:
    """See the module. `run` is its task; the other methods are called from tasks of the same thread."""

    settings: MirrorSettings
    _broker: Broker
    state: MirrorState = MirrorState.CONNECTING
    error: str = ""
    troubles: dict[str, str] = attrs.field(factory=dict)
    """By topic, partition or group."""
    copied_bytes: int = 0
    copied_offsets: int = 0
    set_aside: list[SetAside] = attrs.field(factory=list)
    _promoting: trio.Lock = attrs.field(factory=trio.Lock)
    _promotion: Promotion | None = None
    _leaders: dict[TopicPartition, int] = attrs.field(factory=dict)
    _ends: dict[TopicPartition, int] = attrs.field(factory=dict)
    _agreed: set[TopicPartition] = attrs.field(factory=set)
    _compacted: set[str] = attrs.field(factory=set)
    _waiting: dict[TopicPartition, float] = attrs.field(factory=dict)
    """Partitions that have failed, and when they are tried again."""
    _offsets: dict[tuple[str, TopicPartition], tuple[int, int, str | None]] = attrs.field(factory=dict)
    """What was committed here last."""
    _epochs: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The leader epoch that the source began while it was copied, where the mirror agrees with it again since."""
    _flagged: set[str] = attrs.field(factory=set)
    """Topics that are among `troubles`."""
    _empty: dict[TopicPartition, int] = attrs.field(factory=dict)
    """Partitions whose source has no records up to its end, and that end."""
    _is_cut_off: bool = False
    """The connection broke while it copied, and no new one was refused since."""
    _discover_at: float = -math.inf
    _cut_at: float = -math.inf
    """When the ends of the newest cut were read."""
    _round_begun: float | None = None
    _complete_at: float | None = None
    """When the source's ends were read that were reached last."""
    _round_s: float = 0.0
    _news_by: float = -math.inf
    """When the long poll has to have its response."""
    _loaded: trio.Event = attrs.field(factory=trio.Event)
    """The newest cut of an earlier process is known."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _at_rest: trio.Event = attrs.field(factory=trio.Event)
    _again: trio.Event = attrs.field(factory=trio.Event)

    def reserve(self) -> None:
        """Let clients create no topic that the link copies, and the server's statistics have the link. Called once, before
        clients come."""
        self._broker.mirroring.reserve(self.settings.name, self.settings.matches)
        self._broker.mirroring.report(self.progress)

    async def run(self) -> None:
        """Copy until cancelled; a promotion ends it early."""
        if self.settings.internal_topics:  # else a promotion would go back to the last one that was taken with them
            await self._broker.mirroring.load_cut()
        self._loaded.set()
        while True:
            self._scope, self._at_rest, self._again = trio.CancelScope(), trio.Event(), trio.Event()
            try:
                with self._scope:
                    await self._copy_always()
            finally:
                self._at_rest.set()
            await self._again.wait()

    async def promote(self, *, accept_incomplete: bool) -> Promotion:
        """Copy what the source has now, for at most SETTLE_S while it can be reached, then stop copying and make the mirrors
        writable. Later calls return the same. Raises RequestError, OSError, StorageError; copying goes on then, as it does
        after a cancelled call."""
        async with self._promoting:
            if self._promotion is not None:
                return self._promotion
            await self._loaded.wait()
            asked = time.monotonic()
            with trio.move_on_after(SETTLE_S):
                while self._may_copy_more() and (self._complete_at or 0) < asked:
                    self._cut_at = -math.inf if self._cut_at < asked else self._cut_at
                    await trio.sleep(SETTLE_POLL_S)
            self._scope.cancel()
            try:
                await self._at_rest.wait()
                promotion = await self._broker.mirroring.promote(self.settings.name, accept_incomplete=accept_incomplete)
            except BaseException:
                self._again.set()
                raise
            self.state, self.error, self._promotion = MirrorState.PROMOTED, "", promotion
            self._note_aside(promotion.set_aside)
            self._ends.clear()
            return promotion

    def _may_copy_more(self) -> bool:
        """Return whether the source can be reached, or that is not known yet: the first connection is being made, or the one
        after a connection that broke."""
        is_unknown = self.state is MirrorState.CONNECTING and (self._is_cut_off or not self.error)
        return is_unknown or self.state is MirrorState.COPYING

    # ---- what it says of itself ------------------------------------------------------------------------------------------

    def progress(self) -> MirrorProgress:
        """Return the link's progress as the server's statistics and the link's metrics have it."""
        behind = sum(each for _, each in self._behind())
        per_offset = self.copied_bytes / self.copied_offsets if self.copied_offsets else 0.0
        return MirrorProgress(
            link=self.settings.name,
            source=",".join(map(str, self.settings.source)),
            state=self.state.value,
            error=self.error,
            topics=len({each.topic for each in self._leaders}),
            partitions=len(self._leaders),
            lag_records=behind,
            lag_bytes=math.ceil(behind * per_offset),
            lag_ms=self._lag_ms(),
            copied_bytes=self.copied_bytes,
            troubles=tuple(f"{key}: {why}" for key, why in self.troubles.items()),
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the progress, and the files with records that were set aside, as `triolog mirror` prints them."""
        return {
            **attrs.asdict(self.progress()),
            "set_aside": [
                {
                    "partition": str(each.topic_partition),
                    "start_offset": each.start_offset,
                    "end_offset": each.end_offset,
                    "records": each.records,
                    "file": each.path,
                }
                for each in self.set_aside
            ],
        }

    def _behind(self) -> Iterable[tuple[TopicPartition, int]]:
        for topic_partition, end in list(self._ends.items()):
            try:
                missing = end - self._broker.mirroring.log(topic_partition).log_end_offset
            except RequestError:
                missing = 0
            if missing > 0 and self._empty.get(topic_partition, -1) < end:
                yield topic_partition, missing

    def _lag_ms(self) -> float:
        """Age of the source's state that is complete here. -1: none was yet."""
        if self.state is MirrorState.PROMOTED:
            return 0.0
        if self._complete_at is None:
            return -1.0
        now, is_between_rounds = time.monotonic(), self.state is MirrorState.COPYING and self._round_begun is None
        is_waiting_for_news = is_between_rounds and now <= self._news_by
        return round((self._round_s if is_waiting_for_news else now - self._complete_at) * 1000, 1)

    def _trouble(self, key: object, why: str) -> None:
        if self.troubles.get(str(key)) != why:
            LOGGER.warning("mirror %s: %s: %s", self.settings.name, key, why)
        if len(self.troubles) < MAX_TROUBLES or str(key) in self.troubles:
            self.troubles[str(key)] = why

    def _note_aside(self, found: Iterable[SetAside]) -> None:
        self.set_aside = [*self.set_aside, *found][-MAX_SET_ASIDE:]

    # ---- copying ---------------------------------------------------------------------------------------------------------

    async def _copy_always(self) -> None:
        pauses = Backoff(*PAUSES_MS)
        while True:
            self.state = MirrorState.CONNECTING
            try:
                await self._session(pauses)
            except LinkEndedError as exc:
                self.state, self.error = MirrorState.STOPPED, str(exc)
                LOGGER.error("mirror %s: %s", self.settings.name, exc)
                return
            except (SourceError, SettingsError, RequestError, OSError, StorageError) as exc:
                why = str(getattr(exc, "message", exc))
                if why != self.error:
                    LOGGER.warning("mirror %s: not copying: %s", self.settings.name, why)
                self._is_cut_off = self.state is MirrorState.COPYING
                self.state, self.error = MirrorState.CONNECTING, why
            except Exception as exc:
                self._is_cut_off = False
                self._broker.disk.errors.note("mirror", self.settings.name, exc)
                self.state, self.error = MirrorState.CONNECTING, f"unhandled exception ({exc!r})"
            await trio.sleep(pauses.pause_s())

    async def _session(self, pauses: Backoff) -> None:
        settings = self.settings
        tls = await trio.to_thread.run_sync(settings.tls_context) if settings.uses_tls else None
        source = Source([(each.host, each.port) for each in settings.source], tls, settings.login)
        self._agreed.clear()
        self._epochs.clear()
        self._empty.clear()
        self._discover_at = offsets_at = -math.inf
        async with aclosing(source):
            while True:
                if time.monotonic() >= self._discover_at:
                    await self._discover(source)
                    self._discover_at = time.monotonic() + DISCOVERY_S
                await self._round(source)
                self.state, self.error = MirrorState.COPYING, ""
                pauses.reset()
                if not settings.internal_topics and time.monotonic() >= offsets_at:
                    await self._copy_offsets(source)
                    offsets_at = time.monotonic() + OFFSETS_S
                await self._wait_for_news(source, min(self._discover_at, offsets_at) - time.monotonic())

    async def _discover(self, source: Source) -> None:
        mirroring, settings = self._broker.mirroring, self.settings
        topics = [topic for topic in await source.topics() if settings.matches(topic.name)]
        if settings.internal_topics:
            if own := mirroring.own_internal_topics(settings.name):
                raise LinkEndedError(
                    f"this server has {', '.join(own)} of its own, so it cannot copy those of the source. Start on an empty "
                    "directory, or run `triolog demote` on the stopped one"
                )
            if len(source.nodes) > 1:
                raise LinkEndedError(f"the source has {len(source.nodes)} brokers. internal_topics is for a triolog")
        if promoted := [each.name for each in topics if self._is_promoted(each)]:
            raise LinkEndedError(
                f"{promoted[0]} was promoted on this server. Remove [[mirror]], or stop the server and run `triolog demote`"
            )
        configs = await source.configs([topic.name for topic in topics])
        count = sum(len(topic.leaders) for topic in topics)
        if settings.internal_topics and count > ENDS_AT_ONE_MOMENT:
            raise LinkEndedError(
                f"the source has {count} partitions. With internal_topics at most {ENDS_AT_ONE_MOMENT} are copied: more ends "
                "cannot be read at one moment. Name fewer topics"
            )
        if settings.internal_topics and topics and not source.is_triolog:
            raise LinkEndedError("the source is not a triolog. Remove internal_topics: committed offsets are copied without it")
        leaders: dict[TopicPartition, int] = {}
        epochs: dict[str, int] = {}
        troubles: dict[str, str] = {}
        for topic in topics:
            overrides = configs[topic.name]
            try:
                partitions = len(topic.leaders)
                aside = await mirroring.follow_topic(
                    topic.name, topic.topic_id, partitions, overrides, settings.name, epoch=topic.epoch
                )
                self._note_aside(aside)
            except (RequestError, OSError, StorageError) as exc:
                troubles[topic.name] = str(getattr(exc, "message", exc))
                continue
            epochs[topic.name] = topic.epoch
            leaders |= {TopicPartition(topic.name, number): node for number, node in enumerate(topic.leaders)}
            (self._compacted.add if "compact" in overrides.get("cleanup.policy", "") else self._compacted.discard)(topic.name)
        for name in sorted({*mirroring.topics(settings.name)} - {each.name for each in topics}):
            is_left_out = is_internal(name) and not settings.internal_topics
            why = "the source does not have it; the mirror stays until you delete it"
            troubles[name] = "it is not copied without internal_topics" if is_left_out else why
        for name in self._flagged - troubles.keys():
            self.troubles.pop(name, None)
        for name, why in troubles.items():
            self._trouble(name, why)
        self._flagged = set(troubles)
        await mirroring.confirm_sources(epochs)
        source.ids = {topic.name: topic.topic_id for topic in topics}
        self._agreed -= {each for each, node in leaders.items() if self._leaders.get(each, node) != node}
        self._leaders = leaders
        self._ends = {each: end for each, end in self._ends.items() if each in leaders}
        for topic_partition in leaders:
            if topic_partition not in self._agreed:
                await self._guarded(topic_partition, self._agree, source, topic_partition)

    def _is_promoted(self, topic: SourceTopic) -> bool:
        mirroring = self._broker.mirroring
        return mirroring.source_of(topic.name) == "" and self._broker.topics.id_of(topic.name) == topic.topic_id

    async def _guarded(self, topic_partition: TopicPartition, step: Any, *arguments: Any) -> None:
        """Let a failure of one partition be its own."""
        try:
            await step(*arguments)
        except (RequestError, OSError, StorageError) as exc:
            self._trouble(topic_partition, str(getattr(exc, "message", exc)))
            self._waiting[topic_partition] = time.monotonic() + PARTITION_PAUSE_S
        else:
            self.troubles.pop(str(topic_partition), None)

    async def _round(self, source: Source) -> None:
        """Copy up to where the source ends now."""
        self._round_begun = begun = time.monotonic()
        is_due = self.settings.internal_topics and begun >= self._cut_at + CUT_S
        partitions = frozenset(self._leaders)
        ends = self._ends = await source.ends(self._leaders) if self._leaders else {}
        is_cut = is_due and await self._is_complete(source)  # of the ends
        for topic_partition in self._leaders.keys() - ends.keys():
            self._trouble(topic_partition, UNREADABLE)
            self._waiting[topic_partition] = time.monotonic() + PARTITION_PAUSE_S
        while behind := self._to_copy():
            answered = await self._fetch(source, behind, 0)
            is_read = answered.issuperset(behind) and self._agreed.issuperset(behind)
            if is_read and behind == {each: self._to_copy().get(each) for each in behind}:
                self._empty |= {each: ends[each] for each in behind}  # a truncation has left offsets without records
        here = self._broker.mirroring.ends(self.settings.name) if is_cut else dict(ends)
        if self._waiting or not partitions == ends.keys() <= here.keys() or (is_due and not is_cut):
            return
        if is_cut and ends:
            # Topics that the source does not have stay whole, but no coordinator goes back to a state of another time.
            others = {each: end for each, end in here.items() if not is_internal(each.topic)}
            await self._broker.mirroring.note_cut(others | {each: min(end, here[each]) for each, end in ends.items()})
            self._cut_at = begun
        self._finish_round(begun)

    async def _is_complete(self, source: Source) -> bool:
        """Return whether the source has no partition that the ends of this round lack: it may be part of a transaction, or have
        the coordinators' state of one."""
        topics = [each for each in await source.topics() if self.settings.matches(each.name)]
        is_same = all(source.ids.get(each.name) == each.topic_id for each in topics)
        if is_same and {each.name: len(each.leaders) for each in topics} == Counter(each.topic for each in self._leaders):
            return True
        self._discover_at = -math.inf
        return False

    def _finish_round(self, begun: float) -> None:
        self._complete_at, self._round_begun, self._round_s = begun, None, time.monotonic() - begun

    def _to_copy(self) -> dict[TopicPartition, int]:
        """The partitions that lack something and have not failed, with their positions."""
        now = time.monotonic()
        for topic_partition in [each for each, until in self._waiting.items() if until <= now]:
            del self._waiting[topic_partition]
        found = {}
        for topic_partition, _ in self._behind():
            if topic_partition not in self._waiting:
                found[topic_partition] = self._broker.mirroring.log(topic_partition).log_end_offset
        return found

    async def _wait_for_news(self, source: Source, most_s: float) -> None:
        """Copy what comes within a long poll."""
        wait_ms = LONG_POLL_MS if len(source.nodes) <= 1 else LONG_POLL_OF_MANY_MS
        wait_ms = max(0, min(wait_ms, int(most_s * 1000))) if most_s > -math.inf else wait_ms
        self._news_by = time.monotonic() + wait_ms / 1000 + self._round_s
        positions = {}
        for topic_partition in self._leaders:
            if topic_partition not in self._waiting and topic_partition in self._agreed:
                positions[topic_partition] = self._broker.mirroring.log(topic_partition).log_end_offset
        if positions:
            await self._fetch(source, positions, wait_ms)
        else:
            await trio.sleep(LONG_POLL_MS / 1000)

    async def _fetch(self, source: Source, positions: Mapping[TopicPartition, int], wait_ms: int) -> set[TopicPartition]:
        """Copy what the source returns, and return the partitions that it has read. A source that throttles reads none."""
        unknown = [each for each in positions if each not in self._agreed]
        for topic_partition in unknown:
            await self._guarded(topic_partition, self._agree, source, topic_partition)
        if unknown:
            return set()
        begun, before = time.monotonic(), self.copied_bytes
        found = await source.fetch(positions, self._leaders, max_wait_ms=wait_ms, max_bytes=self.settings.fetch_bytes)
        limit = trio.CapacityLimiter(APPENDS_AT_ONCE)

        async def take(topic_partition: TopicPartition, data: FetchPartitionData) -> None:
            async with limit:
                await self._guarded(topic_partition, self._take, topic_partition, data)

        async with trio.open_nursery() as nursery:
            for topic_partition, data in found:
                nursery.start_soon(take, topic_partition, data)
        if self.settings.max_bytes_per_second:
            due_s = (self.copied_bytes - before) / self.settings.max_bytes_per_second
            await trio.sleep(max(0.0, due_s - (time.monotonic() - begun)))
        return {topic_partition for topic_partition, data in found if not data.error_code}

    async def _take(self, topic_partition: TopicPartition, data: FetchPartitionData) -> None:
        mirroring = self._broker.mirroring
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._agreed.discard(topic_partition)
            return
        if data.error_code:
            self._leaders.pop(topic_partition, None)
            self._ends.pop(topic_partition, None)
            self._agreed.discard(topic_partition)
            raise RequestError(f"{UNREADABLE}: {named(data.error_code)}", ErrorCode.UNKNOWN_SERVER_ERROR)
        if data.records:
            if self._begins_epoch(topic_partition, data):
                self._agreed.discard(topic_partition)
                return
            before = mirroring.log(topic_partition).log_end_offset
            self.copied_bytes += await mirroring.append(topic_partition, data.records)
            self.copied_offsets += mirroring.log(topic_partition).log_end_offset - before
        if data.log_start_offset > mirroring.log(topic_partition).log_start_offset:
            await mirroring.raise_log_start(topic_partition, data.log_start_offset)

    def _begins_epoch(self, topic_partition: TopicPartition, data: FetchPartitionData) -> bool:
        """Return whether the source has another leader epoch now, so the log before it may be another one too (KIP-320)."""
        log = self._broker.mirroring.log(topic_partition)
        epoch = next((header.partition_leader_epoch for header, _ in iter_batches(data.records or b"")), 0)
        if epoch <= self._epochs.get(topic_partition, log.leader_epoch) or log.log_start_offset == log.log_end_offset:
            return False
        self._epochs[topic_partition] = epoch
        return True

    # ---- agreeing --------------------------------------------------------------------------------------------------------

    async def _agree(self, source: Source, topic_partition: TopicPartition) -> None:
        """Let the mirror have nothing that the source has not. Raises RequestError, SourceError, OSError."""
        mirroring, leader = self._broker.mirroring, self._leaders[topic_partition]
        start = (await source.starts({topic_partition: leader})).get(topic_partition)
        if start is None:
            raise RequestError(UNREADABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
        log = mirroring.log(topic_partition)
        if start > log.log_end_offset:
            if log.log_start_offset < log.log_end_offset:
                lost = f"{log.log_end_offset} to {start - 1}"
                self._trouble(topic_partition, f"the source has deleted offsets {lost} before they were copied")
            await mirroring.raise_log_start(topic_partition, start)
        while (newest := await mirroring.newest_header(topic_partition)) is not None:
            target = await self._common_end(source, topic_partition, leader, newest)
            if target >= log.log_end_offset:
                break
            header = await mirroring.header_at(topic_partition, target)
            if header is not None and header.base_offset < target:  # the source has not the whole batch, so it has another one
                target = max(header.base_offset, log.log_start_offset)
            if (found := await mirroring.cut_back(topic_partition, target)) is not None:
                self._note_aside([found])
        for gap in log.gaps:
            if await self._fills(source, topic_partition, leader, max(gap.start_offset, start), gap.end_offset):
                if (found := await mirroring.cut_back(topic_partition, gap.start_offset)) is not None:
                    self._note_aside([found])
                break
        self._agreed.add(topic_partition)

    async def _fills(self, source: Source, topic_partition: TopicPartition, leader: int, offset: int, end: int) -> bool:
        """Return whether the source has records between two offsets where the mirror has lost them, as in a power cut."""
        found = await source.fetch({topic_partition: offset}, {topic_partition: leader}, max_wait_ms=0, max_bytes=1)
        headers = [header for _, data in found for header, _ in iter_batches(data.records or b"")]
        return any(header.next_offset > offset and header.base_offset < end for header in headers)

    async def _common_end(self, source: Source, topic_partition: TopicPartition, leader: int, newest: BatchHeader) -> int:
        """Return the offset up to which the mirror may be the source's log."""
        log, epoch = self._broker.mirroring.log(topic_partition), newest.partition_leader_epoch
        found = await source.epoch_end(topic_partition, leader, epoch)
        if found.end_offset < 0:
            raise RequestError(
                f"the records here end in leader epoch {epoch}, which the source does not know: it is older than this mirror",
                ErrorCode.FENCED_LEADER_EPOCH,
            )
        if found.epoch != epoch:
            _, own_end = log.leader_epochs.end_offset_for(found.epoch, log.log_end_offset)
            return max(min(found.end_offset, own_end), log.log_start_offset)
        target = min(found.end_offset, log.log_end_offset)
        if target < log.log_end_offset:
            return target
        if await self._is_same(source, topic_partition, leader, newest):
            return target
        low, high = log.log_start_offset, newest.base_offset
        while low < high:
            header = await self._broker.mirroring.header_at(topic_partition, (low + high) // 2)
            assert header is not None
            if await self._is_same(source, topic_partition, leader, header):
                low = header.next_offset
            else:
                high = min(header.base_offset, high - 1) if header.base_offset > low else low
        return max(high, log.log_start_offset)

    async def _is_same(self, source: Source, topic_partition: TopicPartition, leader: int, header: BatchHeader) -> bool:
        """Return whether the source has the batch. One that it has deleted counts as the same, and of a compacted topic so does
        one with other records at the same offsets. Raises RequestError when it cannot be compared now: a new leader returns
        nothing before it knows its high watermark."""
        is_compacted = topic_partition.topic in self._compacted or is_internal(topic_partition.topic)
        positions, leaders = {topic_partition: header.base_offset}, {topic_partition: leader}
        found = await source.fetch(positions, leaders, max_wait_ms=0, max_bytes=1)
        if not found:
            raise RequestError(f"{UNREADABLE}: it throttles", ErrorCode.UNKNOWN_SERVER_ERROR)
        [(_, data)] = found
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return True
        if data.error_code or not (data.records or is_compacted):
            why = named(data.error_code) if data.error_code else f"no records at offset {header.base_offset} yet"
            raise RequestError(f"{UNREADABLE}: {why}", ErrorCode.UNKNOWN_SERVER_ERROR)
        for theirs, _ in iter_batches(data.records or b""):
            if theirs.next_offset > header.base_offset:
                if is_compacted and theirs.base_offset >= header.next_offset:
                    return True
                is_aligned = (theirs.base_offset, theirs.next_offset) == (header.base_offset, header.next_offset)
                return is_aligned and (is_compacted or theirs.crc == header.crc)
        return is_compacted

    # ---- committed offsets -----------------------------------------------------------------------------------------------

    async def _copy_offsets(self, source: Source) -> None:
        """Commit here what groups have committed at the source, as far as the records are copied. A group with members here
        keeps its own."""
        for group in await source.groups():
            if not re.fullmatch(self.settings.groups, group):
                continue
            commits, values = [], {}
            for topic_partition, (offset, epoch, note) in (await source.committed(group)).items():
                key = group, topic_partition
                if topic_partition not in self._leaders or self._offsets.get(key) == (offset, epoch, note):
                    continue
                log = self._broker.mirroring.log(topic_partition)
                if log.log_start_offset <= offset <= log.log_end_offset:
                    commits.append(Commit(topic_partition, offset, note, epoch))
                    values[key] = offset, epoch, note
            if not commits:
                continue
            try:
                answers = await self._broker.offsets.commit(group, commits)
            except RequestError as exc:
                answers = [exc] * len(commits)
            if failed := [each for each in answers if each is not None]:
                self._trouble(f"group {group}", f"committed offsets are not copied: {failed[0].message}")
            else:
                self._offsets |= values
                self.troubles.pop(f"group {group}", None)
