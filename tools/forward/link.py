"""A link to a Kafka upstream for the lifetime of its process: where it begins, its sessions, and its backlog between them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from ...protocol.types import LATEST_TIMESTAMP, TopicPartition
from ..client.procedures.groups import CommittedOffset
from .errors import ForwardError, RecordsRefusedError, SourceFailedError, TopicStoppedError
from .link_loop import LinkLoop
from .memory import LinkMemory, RateCap, TopicIds, Wishes
from .opening import open_upstream, trouble
from .pacing import StretchSize, opens_in_s
from .progress import LinkEvent, LinkProgress, LinkState
from .session import KEEP_S, Session
from .settings.link_settings import LinkSettings, wanted_topics
from .source.source import Source
from .upstream.connection import UpstreamClients


class Claims:
    """The upstream topics that the links of this process have claimed. Two links to one topic would mix up its order and their
    offsets. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[str, str], tuple[str, str]] = {}

    def claim(self, to: str, target: str, link: str, topic: str) -> str | None:
        """Take a topic upstream for a link's topic; answers who has it, if that is somebody else."""
        with self._lock:
            owner = self._owners.setdefault((to, target), (link, topic))
            return None if owner == (link, topic) else f"topic {owner[1]} of link {owner[0]}"

    def release(self, link: str) -> None:
        """It sends nothing more."""
        with self._lock:
            for target in [target for target, owner in self._owners.items() if owner[0] == link]:
                del self._owners[target]


def note_beginning(memory: LinkMemory) -> None:
    """Note in the source where a link begins, before the upstream was ever reached: what is lost from then on is a gap that the
    upstream is told of, and no later beginning.

    Of partitions of which nothing is noted, unless their topic was created again. Not for `latest`, whose note would let
    retention take records that an upstream, asked later, turns out not to have. Raises SourceFailedError.
    """
    settings, source = memory.settings, memory.source
    if settings.start.timestamp == LATEST_TIMESTAMP:
        return
    topics = source.topics()
    ids = {
        TopicPartition(name, number): topics[name].topic_id
        for name in wanted_topics(settings.topics, settings.topic_pattern, topics)
        if memory.topic_ids.known(name) in (None, topics[name].topic_id)
        for number in topics[name].partitions
    }
    unknown = ids.keys() - memory.begun.keys()
    noted = source.committed(memory.group, unknown)
    begins = source.locate(unknown - noted.keys(), settings.start)
    if begins:
        source.commit(memory.group, {part: CommittedOffset(offset, ids[part]) for part, offset in begins.items()})
    memory.begun |= {part: begins.get(part) for part in unknown}


QUICK_TRIES: Final = 64
"""Sessions in a row that end to begin again at once, before one is made to wait as after a failure."""


class Link(LinkLoop):
    """A link to an upstream."""

    settings: LinkSettings
    progress: LinkProgress

    def __init__(
        self,
        settings: LinkSettings,
        node: str | None,
        open_source: Callable[[], Source],
        wishes: Wishes,
        claims: Claims,
        *,
        topic_ids: TopicIds | None = None,
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
        jitter: random.Random | None = None,
    ) -> None:
        super().__init__(settings, LinkProgress(settings.name, settings.to, settings.delivery.value), wishes, jitter)
        self._node = node
        self._open_source = open_source
        self._claims = claims
        self._topic_ids = topic_ids or TopicIds()
        self._now_ms = now_ms
        self._memory: LinkMemory | None = None
        self._quick_tries = 0
        self._kept_s = time.monotonic()

    def release(self) -> None:
        self._claims.release(self.settings.name)

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._source = self._open_source()

    def _close(self) -> None:
        self._source.close()

    def _wanted_anew(self) -> None:
        if self._memory is not None:
            self._memory.troubles.look_now(time.monotonic())

    def _session(self) -> None:
        session: Session | None = None
        error: ForwardError | None = None
        try:
            memory = self._remember(self._source)
            note_beginning(memory)
            session = Session(memory, open_upstream(memory, self._clients(memory)))
            self._connected()
            self._run(session)
        except ForwardError as exc:
            error = exc
            if isinstance(exc, TopicStoppedError):
                assert self._memory is not None
                trouble(self._memory, exc.topic, exc.message)
            raise
        finally:
            if session is not None:
                session.close(error)

    def _must_wait(self, error: ForwardError | None) -> bool:
        self._quick_tries = self._quick_tries + 1 if isinstance(error, TopicStoppedError | RecordsRefusedError) else 0
        return super()._must_wait(error) or self._quick_tries > QUICK_TRIES

    def _run(self, session: Session) -> None:
        """Stretch by stretch, until something else is to be done."""
        wishes = self.wishes
        while wishes.version == self._seen and not self._closed_for_s() and not session.needs_refresh():
            if session.step():
                self._retry.reset()
            since_s = wishes.drains_since_s
            if session.is_drained:
                session.note()
                wishes.drained(since_s)
                if wishes.ends_when_drained:
                    wishes.stop()
                    return
            if self.progress.state is LinkState.DRAINING and wishes.drains_since_s is None:
                self._happened(LinkEvent.DRAINED)

    def _connected(self) -> None:
        draining = self.wishes.drains_since_s is not None
        self._happened(LinkEvent.DRAIN if draining else LinkEvent.CONNECTED)

    def _remember(self, source: Source) -> LinkMemory:
        """Return the memory of the link; the first call requests the node name from the source if the link has none."""
        if self._memory is None:
            settings = self.settings
            self._memory = LinkMemory(
                settings=settings,
                node=self._node or source.node(),
                source=source,
                wishes=self.wishes,
                progress=self.progress,
                claims=self._claims,
                topic_ids=self._topic_ids,
                size=StretchSize(settings.transaction_max_bytes),
                cap=RateCap(settings.max_bytes_per_second) if settings.max_bytes_per_second else None,
            )
            self.progress.node = self._memory.node
        return self._memory

    def _clients(self, memory: LinkMemory) -> UpstreamClients:
        return UpstreamClients(self.settings, memory.group, self.wishes.is_patient)

    def _closed_for_s(self) -> float:
        """Return the seconds until the windows open; 0: the link may send."""
        if self.wishes.drains_since_s is not None:
            return 0.0
        return opens_in_s(self.settings.windows, self._now_ms() / 1000, self.settings.timezone)

    def _look(self) -> None:
        """Update the size of the backlog, and commit the link's offsets in the source again so that it keeps them."""
        source = self._source
        try:
            memory = self._remember(source)
            note_beginning(memory)
            self.progress.seen(source.topics().values())
            if time.monotonic() - self._kept_s >= KEEP_S:
                partitions = [
                    TopicPartition(topic.name, number) for topic in source.topics().values() for number in topic.partitions
                ]
                kept: dict[TopicPartition, CommittedOffset] = source.committed(memory.group, partitions)
                source.commit(memory.group, kept)
                self._kept_s = time.monotonic()
        except SourceFailedError:
            return
