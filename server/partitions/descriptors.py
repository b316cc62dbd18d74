"""The budget of file descriptors and maps (CPython's `mmap` keeps a duplicate of its descriptor, so a map counts as one).

A thousand partitions have five each and a process may have 1,024. So idle files are closed and idle maps dropped, and whoever
needs one again opens it: nothing but time is lost. Idle is found by second chance: every use sets a mark, the sweep clears
it, and takes what it finds without one. A file with a lease is never taken.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..storage.disk.diskops import FileHandle, Mapped
from ..system.open_files import default_max_connections, log_file_budget

Holder = FileHandle | Mapped


def default_budget() -> int:
    """Beside as many connections as there are by default."""
    return log_file_budget(default_max_connections())


@attrs.define(eq=False, repr=False)
class DescriptorBudget:
    """The current holders of descriptors. Owner: the disk, in the trio thread."""

    limit: int = attrs.field(factory=default_budget)
    _holders: deque[Holder] = attrs.field(factory=deque)

    @property
    def held(self) -> int:
        """Descriptors that open files and maps take, including some that were given back and not yet noticed."""
        return len(self._holders)

    def at_a_time(self, most: int, files: int) -> int:
        """`most` users of so many files each, or as many as a small budget has room for; never so few that one file that hangs
        holds up the rest."""
        return max(2, min(most, self.limit // files))

    def admit(self, holder: Holder) -> list[int]:
        """Count a file that was just opened or an index that was just mapped; answers descriptors to close for it.

        Room is made among the others: the newcomer stays.
        """
        to_close = self._make_room() if len(self._holders) >= self.limit else []
        self._holders.append(holder)
        holder.used = True
        return to_close

    def _make_room(self) -> list[int]:
        to_close: list[int] = []
        for _ in range(2 * len(self._holders)):
            if len(self._holders) < self.limit:
                break
            holder = self._holders.popleft()
            if not _is_open(holder):
                continue
            if holder.used or (isinstance(holder, FileHandle) and holder.leases):
                holder.used = False
                self._holders.append(holder)
            elif isinstance(holder, FileHandle):
                assert holder.fd is not None
                to_close.append(holder.fd)
                holder.fd = None
            else:
                holder.buffer = None
        return to_close

    def clear(self) -> list[int]:
        """Give everything back; answers the descriptors to close."""
        to_close = [holder.fd for holder in self._holders if isinstance(holder, FileHandle) and holder.fd is not None]
        for holder in self._holders:
            if isinstance(holder, FileHandle):
                holder.fd = None
            else:
                holder.buffer = None
        self._holders.clear()
        return list(dict.fromkeys(to_close))


def _is_open(holder: Holder) -> bool:
    return holder.fd is not None if isinstance(holder, FileHandle) else holder.buffer is not None
