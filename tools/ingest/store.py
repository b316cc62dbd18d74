"""Stores the messages of a broker. For a link of QoS 2 the transaction of a batch also stores the packet ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...protocol.types import TopicPartition
from ..client.blocking.transaction import BlockingTransaction
from ..client.login import LoginConfig
from ..client.procedures import groups
from ..client.procedures.groups import CommittedOffset
from ..client.tls import TlsConfig
from ..forward.errors import LinkStoppedError
from .mapping import Entry, dead_letter
from .packet_ids import after, from_text, to_text
from .record_store import RecordStore
from .settings import IngestLink


class Store(RecordStore):
    """Owner: the thread of one link."""

    def __init__(self, link: IngestLink, server: tuple[str, int], tls: TlsConfig | None, login: LoginConfig | None) -> None:
        super().__init__(link, server, tls, login)
        self._place = TopicPartition(link.dead_letter_topic, 0)
        """Of the offset whose metadata has the packet ids."""
        self.unreleased: dict[int, bytes] = {}
        self._next_unreleased: dict[int, bytes] = {}

    @property
    def is_transactional(self) -> bool:
        return bool(self._link.qos == 2)

    def forget(self) -> None:
        """The broker has a new session: no packet id is in use."""
        if self.unreleased:
            self.store([], list(self.unreleased))

    def _restore(self) -> None:
        try:
            kept = self._client.run(groups.fetch_offsets(self._name, [self._place], require_stable=True))
            self.unreleased = from_text(kept[self._place].metadata) if kept else {}
        except ValueError as exc:
            raise LinkStoppedError(f"the metadata of the offset of group {self._name} is {exc}. Delete that group") from exc

    def _also_send(self, transaction: BlockingTransaction, entries: Sequence[Entry], state: Iterable[int]) -> None:
        self._next_unreleased = after(self.unreleased, (entry.message for entry in entries), state)
        metadata = to_text(self._next_unreleased)
        transaction.send_offsets(self._name, {self._place: CommittedOffset(0, metadata)})

    def _committed(self) -> None:
        self.unreleased = self._next_unreleased

    def _dead_letter(self, entry: Entry, reason: str, most_bytes: int | None = None) -> Entry:
        return dead_letter(self._link, entry.message, reason, most_bytes)
