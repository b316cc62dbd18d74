"""Producer ids, each given out once in the life of the log directories (Kafka: ProducerIdManager, ProducerIdsBlock, KIP-730).

Ids are taken in blocks of 1,000 (BLOCK_IDS). A block is written to every log directory before the first of its ids is given
out: one sync for 1,000 producers, at the price of up to 999 ids that a restart leaves unused, of 2^63. It is a file of its own
rather than a record of `__transaction_state`: idempotent producers need ids also where no transaction was ever made, and a
promise that has to hold for ever should not hang on the compaction of a log.

The first id is 2^40 (FIRST_PRODUCER_ID): Kafka counts from 0. Logs that move to or from a Kafka cluster then never hold ids
that the other one gives out to somebody else. A backup, a snapshot and a fork of a directory go on at ids drawn at random (see
`producer_id_block`), and a broker of a test goes on after a reset: clients live on, and with them what they have appended as.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from ..logs.log_manager import LogManager
from ..storage.directory.log_directory import LogDirectory, is_passing
from ..storage.disk.checkpoints import FIRST_PRODUCER_ID, read_producer_id_block, write_producer_id_block
from ..storage.errors import LogOfflineError, StorageError

BLOCK_IDS: Final = 1000


@attrs.define(eq=False, repr=False)
class ProducerIds:
    """See the module. Owner: whoever is inside `_turn`."""

    _manager: LogManager
    _next: int = 0
    _end: int = 0
    """`_next` to `_end`, exclusive, are on the device as ours and not given out."""
    _used: int = -1
    """The highest id that was seen in a log."""
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    def saw(self, producer_id: int) -> None:
        """A log holds this id: it is not free, also where the directory comes from Kafka and there is no file."""
        self._used = max(self._used, producer_id)

    async def next(self) -> int:
        """An id that nobody had before. Raises RequestError when a new block cannot be written."""
        async with self._turn:
            if self._next == self._end:
                with trio.CancelScope(shield=True):
                    await self._take_block()
            producer_id, self._next = self._next, self._next + 1
            return producer_id

    async def _take_block(self) -> None:
        """Every directory in service has to have it: whichever is there at the next start must not know less."""
        disk, directories = self._manager.disk, self._manager.log_directories
        try:
            directories.check_any()
            known = [
                await disk.call(read_producer_id_block, disk.fs, each.path, at=each.path) for each in list(directories.live)
            ]
            first = max(FIRST_PRODUCER_ID, self._end, self._used + 1, *known)
            for directory in list(directories.live):
                try:
                    await disk.call(self._write_block, directory, first + BLOCK_IDS, at=directory.path)
                except OSError as exc:
                    if is_passing(exc):
                        raise
                    directories.fail(directory, exc)
        except (OSError, StorageError) as exc:
            raise LogOfflineError(
                f"no producer ids can be given out: {exc}; free space or check the device, then try again"
            ) from exc
        self._next, self._end = first, first + BLOCK_IDS

    def _write_block(self, directory: LogDirectory, end: int) -> None:
        write_producer_id_block(self._manager.fs, directory.path, end, durable=directory.durable)
