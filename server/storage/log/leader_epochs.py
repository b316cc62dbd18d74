"""Maps leader epochs to their start offsets (Kafka: LeaderEpochFileCache; file `leader-epoch-checkpoint`, KIP-101).

One server is always leader, so a log of its own has one epoch, 0. A log that Kafka wrote has the epochs it had there; appends
go on in the latest. The cache is memory; `encode` gives the file's content.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from ....protocol.limits import INT32_MAX
from ..disk.checkpoints import decode_checkpoint, encode_checkpoint
from ..errors import CheckpointError

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """Entries with ascending epochs and non-decreasing start offsets. Owner: the log."""

    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._entries: list[EpochEntry] = []
        self.latest_epoch: int | None = None
        """Of the last entry. Every append asks for it."""
        for entry in entries or ():
            self.assign(*entry)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def start_offset(self) -> int:
        """Return the start offset of the first known epoch, 0 when none is known. The log has nothing before it."""
        return self._entries[0].start_offset if self._entries else 0

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` starts at `start_offset`; entries that contradict it go. True when something changed."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset}: neither can be negative")
        if self._entries:
            latest = self._entries[-1]
            if latest.epoch == epoch and start_offset >= latest.start_offset:
                return False
        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self.latest_epoch = epoch
        return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """Let a later epoch than all start here, unless one as late has started."""
        if epoch > (self.latest_epoch or 0):
            self.assign(epoch, start_offset)

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or behind `end_offset`. True when something changed."""
        kept = len(self._entries)
        while end_offset >= 0 and self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        self.latest_epoch = self._entries[-1].epoch if self._entries else None
        return len(self._entries) != kept

    def go_on_from(self, end_offset: int) -> bool:
        """The log ends here: later starts are forgotten, and the latest epoch (0 when there is none) goes on from here.

        So appends never carry a lower epoch than before. True when something changed.
        """
        before, epoch = self.entries, self.latest_epoch or 0
        self.truncate_from_end(end_offset)
        if self.latest_epoch != epoch:
            self.assign(epoch, end_offset)
        return self.entries != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what lies before `start_offset`; the epoch it falls into starts there. True when something changed."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0:
            return False
        entry = EpochEntry(self._entries[slot - 1].epoch, start_offset)
        changed = slot > 1 or self._entries[0] != entry
        self._entries[:slot] = [entry]
        return changed

    def clear(self) -> bool:
        changed = bool(self._entries)
        self._entries.clear()
        self.latest_epoch = None
        return changed

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch <= `epoch`; (-1, -1) when that cannot be said."""
        latest = self.latest_epoch
        if epoch == UNDEFINED_EPOCH or latest is None or epoch > latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == latest:
            return epoch, log_end_offset
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[higher].start_offset
        return (self._entries[higher - 1].epoch if higher else epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else None

    def encode(self) -> bytes:
        return encode_checkpoint([f"{epoch} {start_offset}" for epoch, start_offset in self._entries])


def decode_leader_epochs(path: str, data: bytes) -> LeaderEpochs:
    """The cache that a file's content stands for. Raises CheckpointError naming `path` and the entry."""
    entries = [EpochEntry(epoch, start) for epoch, start in decode_checkpoint(path, data, fields=2)]
    for slot, (epoch, start) in enumerate(entries):
        if epoch > INT32_MAX:
            raise CheckpointError(f"{path}: entry {slot} has epoch {epoch} from offset {start}. An epoch has 31 bits")
    return LeaderEpochs(entries)
