"""Stores the expected content of derived files: `derived.json` in a partition's directory. Kafka ignores this file.

Two files decide what is read, and nothing in a log that is not scanned would contradict them if they were wrong: without its
`.txnindex` a segment shows aborted records to committed readers, without its line in `log-start-offset-checkpoint` a log shows
deleted ones. Two more are searched, and no batch contradicts a wrong entry in their middle: `.index` and `.timeindex`.

`{"format_version": 1, "log_start_offset": n, "transaction_indexes": [[base offset, bytes of the log, bytes of the index,
CRC-32C of the index], ...], "lookup_indexes": [[base offset, bytes of the log, bytes of `.index`, its CRC-32C, bytes of
`.timeindex`, its CRC-32C, largest timestamp], ...], "dropped": [records, bytes, first offset, end offset], "crc32c": n}`;
`crc32c` is that of the document without it. If you edit the file, delete `crc32c`.

There is an entry for each segment with aborted transactions, written when the segment is closed or replaced. It counts as long
as the log has that size: a Kafka that appended or compacted has left it behind. (One that compacted without a change of size
costs a scan, which finds what is true.)

A segment with entries in its offset index has an entry in `lookup_indexes`, under the same rule. (A smaller segment is compared
with all of its batches at every start.) Sizes and the largest timestamp are compared when the log is opened, checksums before
the first lookup (see `index`). Not every roll writes the file. For a segment whose entry a kill took away, retention reads the
largest timestamp from the batches. The newest MOST_KNOWN segments have an entry.

The log start offset is written where it is raised; the larger one counts, this or the checkpoint's, if the log reaches it. A
clean stop leaves the file beside every log with entries in an offset index: where it is missing then, it was lost.
`dropped` is there once records were deleted in spite of a hold (see `retention`): how many in all, and the last of their gaps.
The file comes into being with the first of these, or when a directory of Kafka's is opened. It is a second witness only: where
it cannot be written the log goes on, and nobody waits until it is on the device.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import crc32c
from ..disk.checkpoints import maybe_read
from ..disk.diskops import Procedure, Read, WriteFiles
from ..disk.filesystem import FileSystem, replace_file
from ..errors import UNREADABLE_JSON, CheckpointError, CorruptIndexError
from ..indexes.index import AbstractIndex, KnownContent, checksum
from ..segments.segment import LogSegment

LOGGER: Final = logging.getLogger(__name__)

FILE_NAME: Final = "derived.json"
FORMAT_VERSION: Final = 1
MOST_KNOWN: Final = 100_000
"""Segments of a log in `lookup_indexes`: 8 MB of text, of the 64 MiB that are read."""
ROLLS_PER_WRITE: Final = 16
"""The file is written at a roll when so many times what is new is as much as all."""
_FIELDS: Final = frozenset({"format_version", "log_start_offset", "transaction_indexes", "lookup_indexes", "dropped"})


class IndexFacts(NamedTuple):
    """The noted content of a segment's `.txnindex`, for a log of that size."""

    log_bytes: int
    index_bytes: int
    crc: int


class LookupFacts(NamedTuple):
    """The noted content of a segment's `.index` and `.timeindex`, for a log of that size."""

    log_bytes: int
    offset_index: KnownContent
    time_index: KnownContent
    max_timestamp: int


class Dropped(NamedTuple):
    """The records deleted since the log's creation in spite of a hold, and the last gap that this left."""

    records: int = 0
    size_bytes: int = 0
    first_offset: int = -1
    end_offset: int = -1


NOTHING_DROPPED: Final = Dropped()


class Facts(NamedTuple):
    """The content of the file; index facts by base offset."""

    log_start_offset: int
    indexes: Mapping[int, IndexFacts]
    dropped: Dropped = NOTHING_DROPPED
    lookups: Mapping[int, LookupFacts] = MappingProxyType({})


def encode_facts(facts: Facts) -> bytes:
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "log_start_offset": facts.log_start_offset,
        "transaction_indexes": [[base_offset, *each] for base_offset, each in sorted(facts.indexes.items())],
    }
    if facts.lookups:
        document["lookup_indexes"] = [
            [base_offset, log_bytes, *offset_index, *time_index, max_timestamp]
            for base_offset, (log_bytes, offset_index, time_index, max_timestamp) in sorted(facts.lookups.items())
        ]
    if facts.dropped != NOTHING_DROPPED:
        document["dropped"] = list(facts.dropped)
    text = json.dumps(document).encode()
    return b'%b, "crc32c": %d}\n' % (text[:-1], crc32c(text))


def decode_facts(path: str, data: bytes) -> Facts:
    """Raises CheckpointError naming the file and what is wrong with it."""
    try:
        document = json.loads(data)
        if document["format_version"] != FORMAT_VERSION:
            raise CheckpointError(f"{path} has format version {document['format_version']}, known is {FORMAT_VERSION}")
        found = document.pop("crc32c", None)
        if unknown := document.keys() - _FIELDS:
            raise ValueError(f"it has a field {min(unknown)!r}")
        if found is not None and found != (computed := _checksum(document)):
            raise CheckpointError(f"{path} has crc32c {found}, its content has {computed}")
        indexes = {int(base_offset): IndexFacts(*map(int, facts)) for base_offset, *facts in document["transaction_indexes"]}
        lookups = dict(_lookup_facts(*map(int, each)) for each in document.get("lookup_indexes", ()))
        dropped = Dropped(*map(int, document.get("dropped", ())))
        log_start_offset = int(document["log_start_offset"])
        if not 0 <= log_start_offset <= INT64_MAX:
            raise ValueError(f"{log_start_offset} is not an offset")
        return Facts(log_start_offset, indexes, dropped, lookups)
    except UNREADABLE_JSON as exc:
        raise CheckpointError(f"cannot read {path}: {type(exc).__name__}: {exc}") from exc


def _lookup_facts(
    base_offset: int, log_bytes: int, offset_bytes: int, offset_crc: int, time_bytes: int, time_crc: int, max_timestamp: int
) -> tuple[int, LookupFacts]:
    offset_index, time_index = KnownContent(offset_bytes, offset_crc), KnownContent(time_bytes, time_crc)
    return base_offset, LookupFacts(log_bytes, offset_index, time_index, max_timestamp)


def _checksum(document: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(document).encode())


def read_facts(fs: FileSystem, directory: str) -> Facts | None:
    """None when there is no file. Raises CheckpointError, OSError."""
    return maybe_read(fs, f"{directory}/{FILE_NAME}", decode_facts)


def forget_lookups(fs: FileSystem, directory: str) -> None:
    """Delete what the file says of `.index` and `.timeindex`, which are to be replaced. Several processes may do so at once.

    Raises OSError."""
    with suppress(CheckpointError, ValueError, FileNotFoundError):
        facts = read_facts(fs, directory)
        if facts is not None and facts.lookups:
            replace_file(fs, f"{directory}/{FILE_NAME}", encode_facts(facts._replace(lookups={})))


@attrs.define(eq=False, repr=False)
class DerivedFiles:
    """The known facts, and the facts already in the file. Owner: the log."""

    indexes: dict[int, IndexFacts] = attrs.field(factory=dict)
    lookups: dict[int, LookupFacts] = attrs.field(factory=dict)
    dropped: Dropped = NOTHING_DROPPED
    _written: Facts | None = None
    _is_durable: bool = True
    """Whether `_written` is on the device. A clean stop promises that."""
    _unwritten: int = 0
    """Changes of `lookups` since the file was written."""
    is_refused: bool = False
    """Whether the last change could not be written."""
    is_unreadable: bool = False
    """Whether the file was there, and could not be read. A log with nothing to say writes it too then: a power cut may have
    left an empty one, which `verify` would report as damage for as long as the log is idle."""
    is_missing: bool = False
    """Whether the file was not there."""

    @classmethod
    def load(cls, fs: FileSystem, directory: str, *, was_clean: bool) -> tuple[DerivedFiles, int]:
        """Return the facts of the file and its log start offset, 0 when it has none. Raises OSError. After an unclean stop the
        file may be in the system's cache alone."""
        try:
            facts = read_facts(fs, directory)
        except (CheckpointError, ValueError) as exc:
            LOGGER.warning("%s: trusting transaction indexes and the log start offset, and rebuilding the file", str(exc))
            return cls(is_unreadable=True), 0
        if facts is None:
            return cls(is_missing=True), 0
        known = cls(
            indexes=dict(facts.indexes),
            lookups=dict(facts.lookups),
            dropped=facts.dropped,
            written=facts,
            is_durable=was_clean,
        )
        return known, facts.log_start_offset

    def check(self, segment: LogSegment) -> Procedure[None]:
        """Compare the indexes that were loaded for a segment with what is known. Raises CorruptIndexError."""
        self._check_lookups(segment)
        known, path = self.indexes.get(segment.base_offset), segment.transaction_index.path
        if known is None or known.log_bytes != segment.size:
            return
        found = yield from _facts_of(segment)
        if found is None:
            raise CorruptIndexError(f"{path} is missing or empty, but {FILE_NAME} records {known.index_bytes} bytes")
        if found != known:
            raise CorruptIndexError(
                f"{path} has {found.index_bytes} bytes with CRC {found.crc:#010x}, but {FILE_NAME} records "
                f"{known.index_bytes} with CRC {known.crc:#010x}"
            )

    def _check_lookups(self, segment: LogSegment) -> None:
        known = self.lookups.get(segment.base_offset)
        if known is None or known.log_bytes != segment.size:
            segment.is_max_timestamp_certain = not segment.offset_index.entries
            return
        for index, content in zip(segment.indexes, (known.offset_index, known.time_index), strict=True):
            if index.size_in_bytes != content.size_bytes:
                raise CorruptIndexError(
                    f"{index.path} has {index.size_in_bytes} bytes, but {FILE_NAME} records {content.size_bytes}"
                )
            index.known_content = content
        if segment.max_timestamp != known.max_timestamp:
            raise CorruptIndexError(
                f"{segment.time_index.path} has the largest timestamp {segment.max_timestamp}, but {FILE_NAME} "
                f"records {known.max_timestamp}"
            )

    def note(self, segment: LogSegment, *, is_closed: bool = True) -> Procedure[None]:
        """Know what the index files of a segment say now; those that are searched only once it is closed."""
        lookups = (yield from _lookups_of(segment)) if is_closed else None
        self._unwritten += 1
        if lookups is None:
            self.lookups.pop(segment.base_offset, None)
        else:
            self.lookups[segment.base_offset] = lookups
        facts = yield from _facts_of(segment)
        if facts is None:
            self.indexes.pop(segment.base_offset, None)
        else:
            self.indexes[segment.base_offset] = facts

    def forget(self, base_offset: int) -> None:
        """The segment is replaced."""
        self.indexes.pop(base_offset, None)
        self.lookups.pop(base_offset, None)

    @property
    def is_write_due(self) -> bool:
        """Return whether enough is new to write the file at a roll."""
        return ROLLS_PER_WRITE * self._unwritten >= len(self.lookups) > 0

    def is_stop_due(self, segments: Sequence[LogSegment], *, durable: bool) -> bool:
        """Return whether a clean stop of a log that was not changed has something to write, or to force to the device."""
        is_lacking = self._written is None and any(segment.offset_index.entries for segment in segments)
        return (
            self.is_refused
            or self.is_unreadable
            or is_lacking
            or (durable and not self._is_durable)
            or self.lacks(segments[-1])
        )

    def lacks(self, segment: LogSegment) -> bool:
        """Return whether the lookup facts of a segment are still to be noted, as after a start that rebuilt its indexes."""
        known = self.lookups.get(segment.base_offset)
        is_notable = segment.is_max_timestamp_certain and segment.offset_index.entries > 0
        return is_notable and (known is None or known.log_bytes != segment.size)

    def is_known(self, segment: LogSegment) -> bool:
        """Return whether the facts of a segment with aborted transactions are valid."""
        known = self.indexes.get(segment.base_offset)
        return known is not None and known.log_bytes == segment.size

    def write(
        self,
        directory: str,
        segments: Sequence[LogSegment],
        log_start_offset: int,
        *,
        durable: bool,
        must: bool = False,
        is_stop: bool = False,
    ) -> Procedure[None]:
        """Bring the file up to date, if there is something to say. `must`: raise the OSError when that fails. `is_stop`: write
        it for every log with entries in an offset index, so that the next start knows whether the file was lost. A
        file that was written without a sync is then written again."""
        bases = [segment.base_offset for segment in segments]
        self.indexes = {base_offset: self.indexes[base_offset] for base_offset in bases if base_offset in self.indexes}
        kept = bases[-MOST_KNOWN:]
        self.lookups = {base_offset: self.lookups[base_offset] for base_offset in kept if base_offset in self.lookups}
        facts = Facts(log_start_offset, dict(self.indexes), self.dropped, dict(self.lookups))
        is_empty = not self.indexes and not self.lookups and log_start_offset <= bases[0]
        is_empty = is_empty and not (is_stop and any(segment.offset_index.entries for segment in segments))
        is_known = facts == self._written and (self._is_durable or not (is_stop and durable))
        if is_known or (self._written is None and is_empty and not self.is_unreadable):
            return
        try:
            yield WriteFiles(partial(_encoded, f"{directory}/{FILE_NAME}", facts), durable)
        except OSError as exc:
            if must:
                raise
            if not self.is_refused:
                LOGGER.warning("cannot write %s/%s, trying again with the next change: %s", directory, FILE_NAME, exc)
            self.is_refused = True
            return
        self._written, self._is_durable, self.is_refused, self._unwritten = facts, durable, False, 0
        self.is_unreadable = False


def _facts_of(segment: LogSegment) -> Procedure[IndexFacts | None]:
    index = segment.transaction_index
    if not index.entries:
        return None
    data = yield Read(index.file, 0, index.size_in_bytes)
    return IndexFacts(segment.size, len(data), crc32c(data))


def _lookups_of(segment: LogSegment) -> Procedure[LookupFacts | None]:
    """None for an index without entries, and for what was taken over without a checksum."""
    if not segment.offset_index.entries or not segment.is_max_timestamp_certain:
        return None
    offset_index = yield from _content_of(segment.offset_index)
    time_index = yield from _content_of(segment.time_index)
    if any(index.is_distrusted for index in segment.indexes):
        return None
    return LookupFacts(segment.size, offset_index, time_index, segment.max_timestamp)


def _content_of(index: AbstractIndex) -> Procedure[KnownContent]:
    data = yield Read(index.file, 0, index.size_in_bytes)
    yield from index.compare(data)
    return KnownContent(len(data), (yield from checksum(data)))


def _encoded(path: str, facts: Facts) -> list[tuple[str, bytes]]:
    return [(path, encode_facts(facts))]
