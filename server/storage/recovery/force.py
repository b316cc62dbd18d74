"""What the opening of a log has rebuilt is forced to the device: logs and indexes first, then snapshots, then names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import attrs

from ..disk.diskops import drive, execute
from ..disk.filesystem import FileSystem, sync_file
from ..disk.filesystem_layers import LaterSyncs
from ..disk.path_ops import SyncFile
from ..disk.write_again import force_batches, write_file_again
from ..log.log import Log
from ..producers.producer_snapshots import snapshot_paths
from ..segments.segment import LogSegment


@attrs.frozen(kw_only=True)
class Forcing:
    """How far a log can be trusted. `vouches`: a sync is enough, because the process that wrote it has seen none fail.
    `syncs` brings to the device what `fs` reads and writes, perhaps later (see `later_syncs`)."""

    fs: FileSystem
    syncs: FileSystem
    recovery_point: int
    vouches: bool

    def run(self, log: Log, rebuilt: Sequence[LogSegment], written: set[int]) -> None:
        """Force the rebuilt segments of a log, and the producer snapshots at their base offsets and at those that were
        `written`. Raises LostWriteError, OSError."""
        for segment in dict.fromkeys(rebuilt):
            if segment not in list(log.segments):
                continue
            self._force_log(segment)
            for file in segment.files[1:]:
                with suppress(FileNotFoundError):  # one of a new segment is made with its first entry
                    _sync(self.syncs, file.path)
        bases = {segment.base_offset for segment in rebuilt}
        self._write_snapshots_again(log.directory, bases - written)
        paths = [path for offset in sorted(written | bases) for path in snapshot_paths(log.directory, offset)]
        self._sync_snapshots(paths)
        execute(self.syncs, log.sync_of_snapshot())
        log.snapshot_synced(log.unsynced_snapshot)
        self.syncs.sync_directory(log.directory)
        log.names_synced = log.names_created

    def _force_log(self, segment: LogSegment) -> None:
        """Force a log to the device, and write before what nobody can vouch for: all from the recovery point on."""
        promised, path = self.recovery_point, segment.log.path
        if self.vouches:
            sync_file(self.syncs, path)
            return
        doubtful = drive(self.fs, segment.view().translate_offset(promised))
        start = segment.size if doubtful is None else doubtful.position
        force_batches(self.syncs, path, start, segment.size, promised)

    def _sync_snapshots(self, paths: Sequence[str]) -> None:
        """Those that are there."""
        if not isinstance(self.syncs, LaterSyncs):
            execute(self.syncs, [SyncFile(path) for path in paths])
            return
        for path in paths:
            with suppress(FileNotFoundError):
                self.syncs.note(path)

    def _write_snapshots_again(self, directory: str, offsets: set[int]) -> None:
        """Those that were there before: written at a roll, and maybe never synced."""
        paths = [path for offset in sorted(offsets) for path in snapshot_paths(directory, offset)]
        for path in () if self.vouches else paths:
            if self.fs.file_size(path) is not None:
                write_file_again(self.fs, path)


def _sync(syncs: FileSystem, path: str) -> None:
    """Force a file that nobody keeps open to the device, or have that done later without opening it now."""
    if isinstance(syncs, LaterSyncs):
        syncs.note(path)
    else:
        sync_file(syncs, path)
