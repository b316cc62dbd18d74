"""The checks of a log directory, of a running server's too: nothing is written, and no lock is taken.

What cannot be read is a finding, and the checks continue with the rest. A server may change files during a check. So damage in
the directory of a running server counts only where a second check of the partition finds it again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from ....protocol.errors import TriologError
from ....server.config.log_config import KNOWN_KEYS
from ....server.config.version import VERSION_DATE
from ....server.logs.disk_guard import MOST_RESERVE_BYTES, SHARE_OF_DEVICE
from ....server.offline.findings import Collector, Finding, Observer
from ....server.offline.verify import DirectorySays, check_partition, read_directory_files
from ....server.storage.directory.clock_file import CLOCK_FILE, decode_clock
from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory, read_directory, read_partition
from ....server.storage.directory.log_directory import holder_of
from ....server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, maybe_read
from ....server.storage.disk.filesystem import FileSystem, OsFileSystem
from ....server.storage.disk.filesystem_layers import Layer
from ....server.storage.log.gaps import FILE_NAME as QUARANTINE_FILE
from ....server.storage.log.gaps import OffsetGap, decode_gaps
from ....server.system.clock import MAX_STEP_MS, system_now_ms
from .symptoms import symptom_of

if TYPE_CHECKING:
    from ..terminal.progress import NoProgress, ProgressBar

MAX_VERIFIED: Final = 1_000
"""Partitions whose files are verified; the suspect ones come first."""
MAX_PLACES: Final = 3
"""Places that the evidence of a symptom names."""


NOTHING_KNOWN: Final = DirectorySays(
    was_clean=False, topics={}, recovery_points={}, high_watermarks={}, log_start_offsets={}, cleaned_offsets={}
)
"""In place of the files of a directory that cannot be read."""


class OutOfTimeError(Exception):
    """The time for the checks is over."""


class ReadableParts(Layer):
    """A file system without the names that cannot be read: `unreadable` has them with their errors."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.unreadable: dict[str, str] = {}

    def list_directory(self, path: str) -> list[str]:
        with self._noting(path):
            return self._fs.list_directory(path)
        return []

    def file_size(self, path: str) -> int | None:
        with self._noting(path):
            return self._fs.file_size(path)
        return None

    def open(self, path: str, flags: int) -> int:
        with self._noting(path):
            return self._fs.open(path, flags)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    @contextlib.contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            pass  # a server has deleted it since
        except OSError as exc:
            self.unreadable[path] = str(exc.strerror or exc)


@attrs.define(eq=False, repr=False)
class Inspection:
    """The results of the checks of one target. `evidence` has the places of each symptom by its name."""

    path: str
    shape: dict[str, Any] = attrs.field(factory=dict)
    evidence: dict[str, list[str]] = attrs.field(factory=dict)
    verified: dict[str, Any] = attrs.field(factory=dict)

    def found(self, name: str, text: str) -> None:
        self.evidence.setdefault(name, []).append(text)

    @contextlib.contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """End the block at a file that cannot be read or not understood, and note it. A server may delete files meanwhile."""
        try:
            yield
        except FileNotFoundError:
            pass
        except TriologError as exc:
            symptom = symptom_of(str(exc))
            self.found("damaged" if symptom is None else symptom.name, str(exc))
        except OSError as exc:
            self.found("files-unreadable", f"{exc.filename or path}: {exc.strerror or exc}")


def inspect_directory(path: str, *, seconds: float, reserve_bytes: int, bar: ProgressBar | NoProgress) -> Inspection:
    """Check a log directory or the directory of one partition, for about `seconds`. `reserve_bytes` as the server's key."""
    deadline = time.monotonic() + seconds
    inspection = Inspection(path)
    layer = ReadableParts(OsFileSystem())
    fs = layer.fs
    with inspection.noting(path):
        found = read_directory(fs, path)
        holder, says = holder_of(found.path), NOTHING_KNOWN
        with inspection.noting(path):
            says = _check_files(fs, found, holder, inspection)
        checks: tuple[Callable[[], None], ...] = (
            lambda: _describe(fs, found, holder, inspection),
            lambda: _check_space(fs, found.path, reserve_bytes, inspection),
            lambda: _check_topics(says, inspection),
            lambda: _check_clock(fs, found, inspection),
        )
        for check in checks:
            with inspection.noting(path):
                check()
        suspects = {files.path for files in found.partitions if _has_gap(fs, files, inspection) or _is_suspect(files)}
        _verify(fs, found, says, suspects, inspection, deadline=deadline, is_running=holder is not None, bar=bar)
    for name, why in layer.unreadable.items():
        inspection.found("files-unreadable", f"{name}: {why}")
    return inspection


def _check_files(fs: FileSystem, found: StoppedDirectory, holder: str | None, inspection: Inspection) -> DirectorySays:
    collector = Collector()
    says = read_directory_files(fs, found, collector)
    _keep(collector.findings, inspection)
    if not says.was_clean and holder is None and found.is_whole and found.partitions:
        inspection.found("killed", f"{found.path}/{CLEAN_SHUTDOWN_FILE} is missing, and no server has the directory")
    return says


def _describe(fs: FileSystem, found: StoppedDirectory, holder: str | None, inspection: Inspection) -> None:
    """The shape of the directory: names, numbers and sizes; no content."""
    names = fs.list_directory(found.path)
    inspection.shape = {
        "path": found.path,
        "holder": holder,
        "free_bytes": fs.free_bytes(found.path),
        "total_bytes": fs.total_bytes(found.path),
        "files": {each: fs.file_size(f"{found.path}/{each}") for each in names if not fs.is_directory(f"{found.path}/{each}")},
        **{name: getattr(found, name) for name in ("marked", "foreign", "left_over")},
        "partition_count": len(found.partitions),
        "log_bytes": sum(files.log_bytes for files in found.partitions),
        "partitions": [
            {
                "partition": str(files.topic_partition),
                "log_bytes": files.log_bytes,
                "segments": len(files.segments),
                "base_offsets": [each.base_offset for each in (*files.segments[:1], *files.segments[-1:])],
                **{name: len(getattr(files, name)) for name in ("snapshots", "batches")},
                **{name: getattr(files, name) for name in ("orphans", "set_aside", "leftovers", "foreign", "small")},
            }
            for files in found.partitions
        ],
    }


def _check_space(fs: FileSystem, path: str, reserve_bytes: int, inspection: Inspection) -> None:
    free, size = fs.free_bytes(path), fs.total_bytes(path)
    reserve = reserve_bytes if reserve_bytes >= 0 else min(MOST_RESERVE_BYTES, size // SHARE_OF_DEVICE)
    if free < reserve:
        inspection.found("disk-full", f"{path}: {free:,} bytes free, disk_reserve_bytes is {reserve:,}")


def _check_topics(says: DirectorySays, inspection: Inspection) -> None:
    for each in says.topics.values():
        if unknown := sorted(set(each.configs) - set(KNOWN_KEYS)):
            inspection.found("unknown-key", f"topic {each.name}: {', '.join(unknown)}")
    for partition, offset in says.log_start_offsets.items():
        topic = says.topics.get(partition.topic)
        if offset > 0 and topic is not None and not topic.configs.keys() & {"retention.ms", "cleanup.policy"}:
            inspection.found("retention", f"{partition}: log start offset {offset}")


def _check_clock(fs: FileSystem, found: StoppedDirectory, inspection: Inspection) -> None:
    now_ms = system_now_ms()
    clock = None
    with inspection.noting(found.path):
        clock = maybe_read(fs, f"{found.path}/{CLOCK_FILE}", decode_clock)
    if clock is not None and clock.suspended is not None:
        inspection.found("clock-implausible", f"{CLOCK_FILE}: the server does not trust the clock")
    if time.strftime("%Y-%m-%d", time.gmtime(now_ms / 1000)) < VERSION_DATE:
        inspection.found("clock-implausible", f"it is {now_ms} ms, before the date of this version, {VERSION_DATE}")
    logs = [files.segments[-1].path(".log") for files in found.partitions if files.segments]
    newest_ms, newest = max(((fs.modified_ms(path), path) for path in logs), default=(0, ""))
    if newest_ms > now_ms + MAX_STEP_MS:
        inspection.found("clock-implausible", f"{newest} was written {(newest_ms - now_ms) // 1000:,} s after the present time")


def _has_gap(fs: FileSystem, files: PartitionFiles, inspection: Inspection) -> bool:
    gaps: tuple[OffsetGap, ...] = ()
    with inspection.noting(files.path):
        gaps = maybe_read(fs, f"{files.path}/{QUARANTINE_FILE}", decode_gaps) or ()
    for gap in gaps:
        if not gap.is_accepted:
            where = "no file has their bytes" if gap.side_file is None else f"their bytes are in {gap.side_file}"
            inspection.found("ends-early" if gap.side_file is None else "gap", f"{files.topic_partition}: {gap}: {where}")
    return bool(gaps)


def _is_suspect(files: PartitionFiles) -> bool:
    return bool(files.orphans or files.set_aside or files.leftovers or files.foreign or not files.segments)


class _Watch(Collector):
    """Keeps what is found, moves the bar, and ends the check in time."""

    def __init__(self, deadline: float, bar: ProgressBar | NoProgress) -> None:
        super().__init__(Observer())
        self._deadline, self._bar = deadline, bar
        self.bytes = self.records = 0

    def advance(self, log_bytes: int, records: int) -> None:
        self.bytes += log_bytes
        self.records += records
        self._bar.update(done_bytes=self.bytes, records=self.records)
        if time.monotonic() > self._deadline:
            raise OutOfTimeError


def _verify(
    fs: FileSystem,
    found: StoppedDirectory,
    says: DirectorySays,
    suspects: set[str],
    inspection: Inspection,
    *,
    deadline: float,
    is_running: bool,
    bar: ProgressBar | NoProgress,
) -> None:
    """Verify the suspect partitions, then the others from the smallest one on, until the time is over."""
    waiting = sorted(found.partitions, key=lambda files: (files.path not in suspects, files.log_bytes))
    left_out, findings, watch = waiting[MAX_VERIFIED:], [], _Watch(deadline, bar)
    for number, files in enumerate(waiting[:MAX_VERIFIED]):
        try:
            if time.monotonic() > deadline:
                raise OutOfTimeError
            with inspection.noting(files.path):
                some = _check(fs, files, says, watch)
                if is_running and some:
                    again = {_identity(each) for each in _check(fs, read_partition(fs, files.path), says, watch)}
                    some = [each for each in some if _identity(each) in again]
                findings += some
        except OutOfTimeError:
            left_out = waiting[number:]
            break
    inspection.verified = {
        "partitions": len(waiting) - len(left_out),
        "log_bytes": watch.bytes,
        "records": watch.records,
        "not_verified": [str(files.topic_partition) for files in left_out],
        "findings": [{**attrs.asdict(each), "severity": each.severity.value} for each in findings],
    }
    _keep(findings, inspection)


def _check(fs: FileSystem, files: PartitionFiles, says: DirectorySays, watch: _Watch) -> list[Finding]:
    watch.findings.clear()
    check_partition(fs, files, says.of(files.topic_partition), watch)
    return list(watch.findings)


def _identity(finding: Finding) -> tuple[Any, ...]:
    return finding.severity, finding.check, finding.file, finding.position, finding.reason


def _keep(findings: list[Finding], inspection: Inspection) -> None:
    """Name the symptom of each damage. A remark is no symptom."""
    for each in findings:
        if each.severity.value == "damage":
            symptom = symptom_of(each.reason)
            is_short = each.check == "checkpoint" and "the log ends at" in each.reason
            name = "ends-early" if is_short else "damaged" if symptom is None else symptom.name
            inspection.found(name, f"{each.file}: {each.reason}")


def in_words(evidence: Mapping[str, list[str]]) -> dict[str, str]:
    """The first places of each symptom, and the number of the others."""
    return {
        name: "; ".join(places[:MAX_PLACES]) + (f"; {len(places) - MAX_PLACES} more" if len(places) > MAX_PLACES else "")
        for name, places in evidence.items()
    }
