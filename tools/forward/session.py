"""The session of one connection: it sends stretches of records upstream and commits each with the offsets after it. It ends
when a request or a failure interrupts it. Failures are raised, and the next session sends everything since the last commit
again."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

from ...protocol.types import TopicPartition
from ..client.procedures.groups import CommittedOffset
from .errors import RecordsRefusedError, SourceFailedError, TargetRefusedError, TopicStoppedError, TryAgainError
from .handing import Handing, hand_over
from .memory import LinkMemory
from .opening import Opened, trouble
from .pacing import CATCH_UP_DELAY_S, Stretch
from .source.source import Gap, Piece
from .upstream.resume import Mark

LOGGER: Final = logging.getLogger(__name__)

IDLE_S: Final = 0.5
"""How long it waits for records before it looks at everything else."""
DRAINING_S: Final = 0.05
"""The same while somebody waits until nothing is left."""
REFRESH_S: Final = 15.0
"""How often topics and partitions are looked at again."""
NOTE_S: Final = 1.0
"""How often the source is told how far the link is, at most. Without transactions it is told after every stretch."""
PROVE_S: Final = 30.0
"""How often a link that has nothing to send commits an offset upstream, some 1 kB: one that was fenced notices, and so does one
whose upstream is away."""
KEEP_S: Final = 6 * 3600.0
"""How often offsets are committed that have not changed: a group forgets those that are old."""
MAX_RECORDS: Final = 2**31
LEAST_BATCH_BYTES: Final = 16 * 1024


class Session:
    """Owner: the link's thread."""

    def __init__(self, memory: LinkMemory, opened: Opened) -> None:
        self._memory = memory
        self._opened = opened
        self._producer = opened.producer
        self._handing: Handing | None = None
        self._pending: dict[TopicPartition, int] = {}
        """Offsets that are not committed upstream."""
        self._committed = dict(opened.offsets)
        self._marks = dict(opened.marks)
        self._noted: dict[TopicPartition, int] = {}
        self._noted_s = self._refreshed_s = self._kept_s = self._proved_s = time.monotonic()

    @property
    def is_drained(self) -> bool:
        """Return whether a check since the drain request found no records left. A stopped topic has records left, but a link
        that ends when drained does not wait for the operator's decision."""
        since_s, finished_s = self._memory.wishes.drains_since_s, self._memory.source.finished_s
        return (
            since_s is not None
            and finished_s is not None
            and finished_s > since_s
            and self._handing is None
            and not self._pending
            and (self._memory.wishes.ends_when_drained or not self._memory.troubles.messages)
        )

    def step(self) -> bool:
        """Send one stretch, or do the idle work when no records are available. Return True when something was committed, or no
        records are left."""
        memory = self._memory
        handing = self._handing or self._next(self._patience_s)
        if handing is None:
            self._idle()
            return memory.source.finished_s is not None
        self._handing = handing
        if memory.cap is not None and (wait_s := memory.cap.wait_s(time.monotonic())):
            memory.wishes.wait(min(wait_s, IDLE_S), memory.wishes.version)
            return False
        self._stretch(handing)
        return True

    def needs_refresh(self) -> bool:
        """Return whether topics have changed so that another session has to begin."""
        now_s = time.monotonic()
        if self._memory.troubles.is_due(now_s):
            return True
        if now_s - self._refreshed_s < REFRESH_S:
            return False
        self._refreshed_s = now_s
        return self._has_other_topics()

    def note(self) -> None:
        """Tell the source how far the link is."""
        changed = {part: offset for part, offset in self._committed.items() if self._noted.get(part) != offset}
        if changed:
            self._memory.source.commit(self._memory.group, self._with_marks(changed, self._marks))
            self._noted |= changed
        self._noted_s = time.monotonic()

    def close(self, error: BaseException | None) -> None:
        """Give up what is not committed. `error`: why."""
        self._producer.close()
        if not isinstance(error, SourceFailedError):
            with contextlib.suppress(TryAgainError):
                self.note()

    # ---- inside --------------------------------------------------------------------------------------------------------

    @property
    def _patience_s(self) -> float:
        """Return the seconds to wait for records."""
        return IDLE_S if self._memory.wishes.drains_since_s is None else DRAINING_S

    def _next(self, timeout_s: float) -> Handing | None:
        piece = self._memory.source.next(timeout_s)
        return None if piece is None else self._begin(piece)

    def _begin(self, piece: Piece) -> Handing:
        """Without transactions what is handed over cannot be taken back: before that the link checks and notes whose it is."""
        if not self._memory.is_exactly_once:
            name = piece.partition.topic
            self._check_ids({name})
            self._memory.topic_ids.note({name: self._opened.topics[name].topic_id})
        offset = self._pending.get(piece.partition, self._committed[piece.partition])
        return Handing(piece, self._opened.targets[piece.partition.topic], piece.gap, offset)

    def _stretch(self, handing: Handing | None) -> None:
        memory = self._memory
        delay_s = memory.settings.max_delay_ms / 1000
        if memory.source.is_behind:
            delay_s = max(delay_s, CATCH_UP_DELAY_S)
        stretch = Stretch(begun_s=time.monotonic(), max_bytes=memory.size.bytes, max_records=MAX_RECORDS, max_delay_s=delay_s)
        sent: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, int] = {}
        lasts: dict[TopicPartition, int] = {}
        sizes: dict[TopicPartition, int] = {}
        gaps: list[tuple[TopicPartition, Gap]] = []
        self._producer.begin()
        try:
            while handing is not None:
                part = handing.piece.partition
                gap = handing.gap
                try:
                    hand_over(memory, self._producer, handing, stretch, sent.get(part, 0))
                finally:
                    if handing.handed:
                        sent[part] = sent.get(part, 0) + handing.handed
                        lasts[part], sizes[part], handing.handed = handing.last_offset, handing.size_bytes, 0
                if gap is not None and handing.gap is None:
                    gaps.append((part, gap))
                if handing.timestamp >= 0:
                    times[part] = handing.timestamp
                if handing.offset > self._committed[part]:
                    self._pending[part] = handing.offset
                self._handing = None if handing.is_done else handing
                if not handing.is_done or stretch.is_full(time.monotonic()) or memory.wishes.is_stopping:
                    break
                handing = self._more(stretch)
            if stretch.records:
                self._commit(stretch, sent, self._marked(lasts, times), times, gaps)
        except RecordsRefusedError as exc:
            memory.progress.avoided(stretch.records)
            self._refused(exc, sent, lasts, sizes)
            raise
        except TargetRefusedError as exc:
            memory.progress.avoided(stretch.records)
            raise TopicStoppedError(self._source_of(exc.target) or exc.target, exc.message) from exc
        except TryAgainError:
            memory.size.failed()
            memory.progress.avoided(stretch.records)
            raise

    def _more(self, stretch: Stretch) -> Handing | None:
        """Return the next records while the stretch may still wait; None when the stretch should be committed."""
        while (left_s := stretch.left_s(time.monotonic())) > 0 and not self._memory.wishes.is_stopping:
            found = self._next(min(left_s, self._patience_s))
            if found is not None:
                self._handing = found
                return found
            drains = self._memory.wishes.drains_since_s is not None and self._memory.source.finished_s is not None
            if not stretch.records or drains:
                return None
        return None

    def _commit(
        self,
        stretch: Stretch,
        sent: dict[TopicPartition, int],
        marks: dict[TopicPartition, Mark],
        times: dict[TopicPartition, int],
        gaps: list[tuple[TopicPartition, Gap]],
    ) -> None:
        memory = self._memory
        self._check_ids({part.topic for part in self._pending})
        offsets = dict(self._pending)
        self._producer.commit(self._upstream(offsets, self._marks | marks))
        self._committed |= offsets
        self._marks |= marks
        memory.topic_ids.note({part.topic: self._opened.topics[part.topic].topic_id for part in marks})
        self._pending.clear()
        self._proved_s = time.monotonic()
        memory.size.went(stretch.bytes, time.monotonic() - stretch.begun_s)
        for part, count in sent.items():
            memory.caution.accepted(part, count)
        memory.progress.committed(offsets, times, stretch.records, stretch.bytes)
        for part, gap in gaps:
            memory.progress.lost(part, gap)
        if memory.refused:
            self._forget_refused(offsets)
        if not memory.is_exactly_once or time.monotonic() - self._noted_s >= NOTE_S:
            self.note()

    def _idle(self) -> None:
        """Nothing to send: commit offsets behind what is no record (markers, aborted transactions), or that become old, or one
        of them only to see whether this forwarder is still the one that may."""
        memory, now_s = self._memory, time.monotonic()
        self._producer.begin()
        self._producer.look()
        if self._pending and memory.source.finished_s is not None and now_s - self._noted_s >= NOTE_S:
            offsets = dict(self._pending)
            self._check_ids({part.topic for part in offsets})
            if memory.is_exactly_once:
                self._producer.commit(self._upstream(offsets, self._marks))
            self._committed |= offsets
            self._pending.clear()
            memory.progress.committed(offsets, {}, 0, 0)
        elif now_s - self._kept_s >= KEEP_S:
            self._kept_s, self._noted = now_s, {}
            if memory.is_exactly_once:
                self._producer.commit(self._upstream(self._committed, self._marks))
        elif memory.is_exactly_once and self._committed and now_s - self._proved_s >= PROVE_S:
            self._proved_s, partition = now_s, min(self._committed)
            self._producer.commit(self._upstream({partition: self._committed[partition]}, self._marks))
        if now_s - self._noted_s >= NOTE_S:
            self.note()

    def _check_ids(self, names: set[str]) -> None:
        """Check that the records read are of the topics that the session began with: topic ids are never reused."""
        topics = self._memory.source.topics(sorted(names))
        for name in names:
            there = topics.get(name)
            if there is None:
                raise TopicStoppedError(name, "the source no longer has this topic")
            if there.topic_id != self._opened.topics[name].topic_id:
                raise TopicStoppedError(name, "it was deleted and created again while it was forwarded")
        self._memory.progress.seen(topics.values())

    def _has_other_topics(self) -> bool:
        from .settings.link_settings import wanted_topics

        settings = self._memory.settings
        there = self._memory.source.topics()
        self._memory.progress.seen(there.values())
        wanted = wanted_topics(settings.topics, settings.topic_pattern, there)
        now_s = time.monotonic()
        now = {name: there[name] for name in wanted if not self._memory.troubles.blocks(name, now_s)}
        before = self._opened.topics
        return {name: (topic.topic_id, len(topic.partitions)) for name, topic in now.items()} != {
            name: (topic.topic_id, len(topic.partitions)) for name, topic in before.items()
        }

    def _refused(
        self,
        error: RecordsRefusedError,
        sent: dict[TopicPartition, int],
        lasts: dict[TopicPartition, int],
        sizes: dict[TopicPartition, int],
    ) -> None:
        """Find out which record it is, or, when that is known, what becomes of it."""
        memory = self._memory
        topic = self._source_of(error.topic)
        if topic is None:  # the dead-letter topic
            for name in {part.topic for part in memory.refused}:
                trouble(memory, name, f"the dead-letter topic {error.topic} does not take its record: {error.reason}")
            return
        part = TopicPartition(topic, error.partition)
        if error.offset is not None:  # librdkafka's limit is the dead-letter topic's, too
            remedy = "Raise it in the link's table `kafka`" if error.is_size else "Send it upstream with another client"
            self._stopped_at(part, error.offset, f"cannot be sent: {error.reason}", remedy)
            return
        if error.is_size and sent[part] > 1:
            memory.batch_bytes = max(LEAST_BATCH_BYTES, memory.batch_bytes // 2)
        if not memory.caution.refused(part, sent[part]):
            return
        offset, said = lasts[part], f"of {sizes[part]} bytes is refused by the upstream: {error.reason}"
        if memory.settings.dead_letter_topic is not None:
            LOGGER.warning("link %s: the record at offset %d of %s %s", memory.settings.name, offset, part, said)
            memory.refused.setdefault(part, {})[offset] = error.reason
            return
        remedy = "Give the link a `dead_letter_topic`"
        if error.is_size:
            remedy = f"Raise max.message.bytes of {error.topic} there, give the link a `dead_letter_topic`"
        self._stopped_at(part, offset, said, remedy)

    def _stopped_at(self, part: TopicPartition, offset: int, said: str, remedy: str) -> None:
        """The topic stops before a record, until somebody has done something."""
        trouble(
            self._memory,
            part.topic,
            f"the record at offset {offset} of partition {part.partition} {said}. {remedy}, or skip it: `triolog "
            f"forward reset --topic {part.topic} --partition {part.partition} -o {offset + 1}`",
        )

    def _forget_refused(self, offsets: dict[TopicPartition, int]) -> None:
        """Those are in the dead-letter topic now."""
        refused = self._memory.refused
        for part in set(refused) & set(offsets):
            for offset in [each for each in refused[part] if each < offsets[part]]:
                del refused[part][offset]
                self._memory.progress.dead_lettered()
            if not refused[part]:
                del refused[part]

    def _source_of(self, target: str) -> str | None:
        return next((topic for topic, each in self._opened.targets.items() if each == target), None)

    def _marked(self, lasts: dict[TopicPartition, int], times: dict[TopicPartition, int]) -> dict[TopicPartition, Mark]:
        topics = self._opened.topics
        return {part: Mark(topics[part.topic].topic_id, last, times.get(part, -1)) for part, last in lasts.items()}

    def _upstream(
        self, offsets: dict[TopicPartition, int], marks: dict[TopicPartition, Mark]
    ) -> dict[TopicPartition, CommittedOffset]:
        return {
            TopicPartition(self._opened.targets[part.topic], part.partition): kept
            for part, kept in self._with_marks(offsets, marks).items()
        }

    def _with_marks(
        self, offsets: dict[TopicPartition, int], marks: dict[TopicPartition, Mark]
    ) -> dict[TopicPartition, CommittedOffset]:
        return {
            part: CommittedOffset(offset, str(marks[part]) if part in marks else self._opened.topics[part.topic].topic_id)
            for part, offset in offsets.items()
        }
