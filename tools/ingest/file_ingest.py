"""A link from files for the lifetime of its process. What is read at once is one transaction."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from ..forward.link_loop import LinkLoop
from ..forward.memory import Wishes
from ..forward.progress import LinkEvent, Progress
from .file_settings import FileLink
from .file_store import FileStore, entry_of
from .following import Following
from .ingest import OWN_COUNTS
from .mapping import Entry


class FileProgress(Progress):
    """The progress of a link from files."""

    def __init__(self, link: FileLink) -> None:
        super().__init__({"link": link.name, "files": list(link.files), "delivery": "exactly-once"}, OWN_COUNTS)

    def stored(self, entries: Sequence[Entry], truncated: int) -> None:
        """A batch is durable."""
        with self._lock:
            counts = self._counts
            counts["records"] += len(entries)
            counts["bytes"] += sum(len(entry.value) for entry in entries)
            counts["dead_letter_records"] += sum(entry.is_dead_letter for entry in entries)
            counts["batches"] += bool(entries)
            counts["truncated_files"] = truncated
            self._sample()


class FileIngest(LinkLoop):
    """A link from files."""

    settings: FileLink
    progress: FileProgress

    def __init__(
        self,
        link: FileLink,
        open_store: Callable[[FileLink], FileStore],
        wishes: Wishes,
        jitter: random.Random | None = None,
    ) -> None:
        super().__init__(link, FileProgress(link), wishes, jitter)
        self._open_store = open_store
        self._following = Following(link)
        self._troubles: dict[str, str] = {}

    def _close(self) -> None:
        self._following.close()

    def _session(self) -> None:
        store, following = self._open_store(self.settings), self._following
        try:
            store.open()
            following.restore(store.positions)
            self._happened(LinkEvent.CONNECTED)
            while self.wishes.version == self._seen:
                since_s = self.wishes.drains_since_s
                is_idle = not self._store_next(store)
                self._note_troubles()
                if is_idle:
                    if since_s is not None:
                        self.wishes.drained(since_s)
                    if gone := following.finished():
                        store.forget(gone)
                    self.wishes.wait(self.settings.poll_ms / 1000, self._seen)
        finally:
            store.close()

    def _store_next(self, store: FileStore) -> bool:
        """Store the next lines. Return whether there were any."""
        lines = self._following.read()
        if not lines:
            return False
        now_ms = time.time_ns() // 1_000_000
        for line in lines:
            line.arrived_ms = now_ms
        entries = store.store([entry_of(self.settings, line) for line in lines], self._following.resets())
        self._following.stored(lines)
        self.progress.stored(entries, self._following.truncated)
        self._retry.reset()
        return True

    def _note_troubles(self) -> None:
        troubles = self._following.troubles
        if troubles != self._troubles:
            for path in troubles.keys() - self._troubles.keys():
                self._log.warning("cannot follow: link=%s path=%s reason=%r", self.settings.name, path, troubles[path])
            self._troubles = dict(troubles)
            self.progress.troubled(self._troubles)
