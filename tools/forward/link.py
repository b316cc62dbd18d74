"""A link for the lifetime of its process: sessions, and the pauses, closed windows and backoff between them.

It runs in a thread of its own, because librdkafka's calls and the client of the source block.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from ...protocol.types import LATEST_TIMESTAMP, TopicPartition
from ..client.procedures.groups import CommittedOffset
from .errors import (
    ForwardError,
    LinkStoppedError,
    RecordsRefusedError,
    SettingsError,
    SourceFailedError,
    TopicStoppedError,
    TryAgainError,
)
from .memory import LinkMemory, RateCap, TopicIds, Wishes
from .opening import open_upstream, trouble
from .pacing import Failure, Retry, StretchSize, opens_in_s
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


LOGGER: Final = logging.getLogger(__name__)
LOOK_S: Final = 2.0
"""How often a link that sends nothing looks how long its backlog is."""
QUICK_TRIES: Final = 64
"""Sessions in a row that end to begin again at once, before one is made to wait as after a failure."""


class Link:
    """Owner: its thread, which runs `run`. Others ask `progress` and tell `wishes`."""

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
        self.settings: Final = settings
        self.wishes: Final = wishes
        self.progress: Final = LinkProgress(settings.name, settings.to, settings.delivery.value)
        self.error: ForwardError | None = None
        """Why it has failed."""
        self._node = node
        self._open_source = open_source
        self._claims = claims
        self._topic_ids = topic_ids or TopicIds()
        self._now_ms = now_ms
        self._retry = Retry(jitter or random.Random())
        self._memory: LinkMemory | None = None
        self._seen = -1
        self._quick_tries = 0
        self._kept_s = time.monotonic()

    def run(self) -> None:
        """Until it is told to stop, is drained and was to end then, or has failed. An unhandled exception fails it alone."""
        try:
            source = self._open_source()
            try:
                while not self.progress.state.is_final:
                    self._go_on(source)
            finally:
                source.close()
        except Exception as exc:
            LOGGER.exception("unhandled exception: link=%s failed, the others continue", self.settings.name)
            self.error = LinkStoppedError(
                f"unhandled exception ({exc!r}). Send SIGHUP to start the link again, and please report this"
            )
            self.progress.failed(str(self.error))
            if not self.progress.state.is_final:
                self._happened(LinkEvent.FAIL)

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _go_on(self, source: Source) -> None:
        if self.wishes.version != self._seen and self._memory is not None:
            self._memory.troubles.look_now(time.monotonic())
        self._seen = self.wishes.version
        if self.wishes.is_stopping:
            self._happened(LinkEvent.STOP)
        elif self.wishes.is_paused:
            self._rest(LinkEvent.PAUSE, LinkState.PAUSED, LinkEvent.RESUME, None, source)
        elif wait_s := self._closed_for_s():
            self._rest(LinkEvent.WINDOW_CLOSES, LinkState.WAITING, LinkEvent.WINDOW_OPENS, wait_s, source)
        else:
            self._connect_and_run(source)

    def _connect_and_run(self, source: Source) -> None:
        """Run one session; its end decides the next event."""
        session: Session | None = None
        error: ForwardError | None = None
        if self.progress.state is not LinkState.CONNECTING:
            self._happened(LinkEvent.RECONNECT)
        try:
            memory = self._remember(source)
            note_beginning(memory)
            session = Session(memory, open_upstream(memory, self._clients(memory)))
            self._connected()
            self._run(session)
        except TopicStoppedError as exc:
            error = exc
            assert self._memory is not None
            trouble(self._memory, exc.topic, exc.message)
        except (LinkStoppedError, SettingsError) as exc:
            error = self.error = exc
        except (TryAgainError, RecordsRefusedError) as exc:
            error = exc
        except Exception as exc:
            LOGGER.exception("unhandled exception: link=%s; the link retries, the others continue", self.settings.name)
            error = TryAgainError(f"unhandled exception ({exc!r}). The log has a traceback, please report this")
        finally:
            if session is not None:
                session.close(error)
        self._after(None if error is None else error.bare(), source)

    def _after(self, error: ForwardError | None, source: Source) -> None:
        if self.error is not None:
            self.progress.failed(str(self.error))
            self._happened(LinkEvent.FAIL)
            return
        self._quick_tries = self._quick_tries + 1 if isinstance(error, TopicStoppedError | RecordsRefusedError) else 0
        if isinstance(error, TryAgainError) or self._quick_tries > QUICK_TRIES:
            self.progress.failed(str(error))
            if self.wishes.is_stopping:
                return
            failure = error.failure if isinstance(error, TryAgainError) else Failure.REFUSED
            pause_s = self._retry.pause_s(failure, is_awaited=self.wishes.drains_since_s is not None)
            level = logging.WARNING if self._retry.is_news(str(error)) else logging.DEBUG
            LOGGER.log(level, "link %s: %s, trying again in %.1f s", self.settings.name, error, pause_s)
            self._rest(
                LinkEvent.LOST,
                LinkState.BACKING_OFF,
                LinkEvent.TRY_AGAIN,
                pause_s,
                None if isinstance(error, SourceFailedError) else source,
            )

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

    def _rest(self, event: LinkEvent, state: LinkState, ends: LinkEvent, wait_s: float | None, source: Source | None) -> None:
        """Send nothing for so long, or until somebody wants something else, and look at the backlog meanwhile."""
        if self.progress.state is not state:
            self._happened(event)
        until_s = float("inf") if wait_s is None else time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if source is not None:
                self._look(source)
            if self.wishes.wait(min(left_s, LOOK_S), self._seen):
                break
        if self.wishes.is_stopping:
            return
        self._happened(ends)

    def _look(self, source: Source) -> None:
        """Update the size of the backlog, and commit the link's offsets in the source again so that it keeps them."""
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

    def _happened(self, event: LinkEvent) -> None:
        before = self.progress.state
        self.progress.happened(event)
        if event not in (LinkEvent.RECONNECT, LinkEvent.LOST, LinkEvent.TRY_AGAIN):  # why it is lost has been said
            LOGGER.info("link %s is %s, was %s", self.settings.name, self.progress.state.value, before.value)
