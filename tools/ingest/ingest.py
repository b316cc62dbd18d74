"""A link from an MQTT broker for the lifetime of its process. A message is acknowledged when its record is durable.

Everything that has arrived is one batch: one append, then the acknowledgements. Meanwhile the broker sends no more than
`receive_maximum` messages, so neither side's memory grows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Final

from ..forward.errors import TryAgainError
from ..forward.link_loop import LinkLoop
from ..forward.memory import Wishes
from ..forward.progress import LinkEvent, Progress
from .broker import Broker
from .mapping import Entry, Message, entry_of
from .packet_ids import Admitted, admit, fitting
from .settings import INGEST, IngestLink
from .store import Store

IDLE_S: Final = 0.2
DELIVERIES: Final = ("at-most-once", "at-least-once", "exactly-once")
"""By QoS."""
OWN_COUNTS: Final = tuple(name for name in INGEST.counters if name not in ("records", "bytes", "failures"))


class IngestProgress(Progress):
    """The progress of a link from a broker."""

    def __init__(self, link: IngestLink) -> None:
        super().__init__({"link": link.name, "broker": str(link.broker), "protocol": link.protocol.value}, OWN_COUNTS)
        self._qos = link.qos
        self.unreleased = 0

    def granted(self, qos: int) -> None:
        """The broker has granted a QoS, or sent a message with it: the guarantee is that of the lowest."""
        with self._lock:
            self._qos = min(self._qos, qos)

    def lost_session(self) -> None:
        """The broker no longer has the session."""
        with self._lock:
            self._counts["lost_sessions"] += 1

    def stored(self, messages: Iterable[Message], entries: Iterable[Entry], admitted: Admitted, unreleased: int) -> None:
        """A batch is durable."""
        with self._lock:
            counts = self._counts
            for entry in entries:
                counts["records"] += 1
                counts["bytes"] += len(entry.value)
                counts["dead_letter_records"] += entry.is_dead_letter
            for message in messages:
                counts["retained"] += message.retain
                counts["duplicates"] += message.dup
                self._qos = min(self._qos, message.qos)
            counts["batches"] += 1
            counts["avoided_records"] += admitted.avoided
            counts["reused_packet_ids"] += admitted.reused
            if admitted.reused:  # which a broker that keeps its session never does
                self._qos = min(self._qos, 1)
            self.unreleased = unreleased
            self._sample()

    def _snapshot(self) -> dict[str, Any]:
        return {**super()._snapshot(), "delivery": DELIVERIES[self._qos], "unreleased": self.unreleased}


class Ingest(LinkLoop):
    """A link from a broker."""

    settings: IngestLink
    progress: IngestProgress

    def __init__(
        self,
        link: IngestLink,
        open_store: Callable[[IngestLink], Store],
        wishes: Wishes,
        jitter: random.Random | None = None,
    ) -> None:
        super().__init__(link, IngestProgress(link), wishes, jitter)
        self._open_store = open_store
        self._sessions = 0

    def _session(self) -> None:
        store = self._open_store(self.settings)
        try:
            store.open()
            broker = Broker(self.settings, lambda: self.wishes.version == self._seen)
            try:
                self._begin(store, broker)
                is_over = is_granted = False
                while self.wishes.version == self._seen:
                    if not is_granted and broker.granted_qos is not None:
                        is_granted = True
                        self._granted(broker, broker.granted_qos)
                    since_s = self.wishes.drains_since_s
                    messages, released = broker.receive(IDLE_S)
                    kept = fitting(messages, store.unreleased, released, is_over=is_over)
                    is_over = is_over or len(kept) < len(messages)
                    if kept or released:
                        self._store(store, kept, released)
                        broker.acknowledge(kept, released)
                        self._retry.reset()
                    elif since_s is not None:
                        self.wishes.drained(since_s)
                    if is_over and not store.unreleased:
                        raise TryAgainError(f"{broker} exceeds receive_maximum: connecting again for the rest")
            finally:
                broker.close()
        finally:
            store.close()

    def _begin(self, store: Store, broker: Broker) -> None:
        broker.connect()
        if not broker.had_session:
            if self._sessions or store.unreleased:
                self._log.warning("link %s: %s has lost the session, and the messages in it", self.settings.name, broker)
                self.progress.lost_session()
            store.forget()
        broker.subscribe(is_first=not self._sessions)
        self._sessions += 1
        self._happened(LinkEvent.CONNECTED)

    def _granted(self, broker: Broker, qos: int) -> None:
        self.progress.granted(qos)
        self.progress.troubled({f"filter {name}": reason for name, reason in broker.refused.items()})
        for name, reason in broker.refused.items():
            self._log.error("link %s: %s refuses the filter %s: %s", self.settings.name, broker, name, reason)

    def _store(self, store: Store, messages: list[Message], released: list[int]) -> None:
        link = self.settings
        admitted = admit(messages, store.unreleased)
        wanted = [message for message in admitted.new if link.retained or not message.retain]
        entries = [entry_of(link, message) for message in wanted]
        if entries or not store.unreleased.keys().isdisjoint(released):
            entries = store.store(entries, released)
        self.progress.stored(messages, entries, admitted, len(store.unreleased))
