"""Export: records of segment files as Parquet, Arrow, CSV or JSON lines, a folder for each topic and UTC day of the record,
`topic=<topic>/day=<day>/part-<partition>-<offset>.parquet`.

Each piece writes its own files under temporary names and renames them when all are whole and on the device; the names follow
from the piece, so one that is run again replaces its files. A target that holds something and is no export is refused: files of
another one among its own would double rows. `_SUCCESS` appears when everything is there, and `_triolog_export.json` is the
manifest, with the files, counts and offsets of every piece. Records without a timestamp are in
`day=__HIVE_DEFAULT_PARTITION__`, Hive's null.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from ...protocol.errors import TriologError
from ...protocol.limits import MIB
from ...protocol.records.columnar.schema import COLUMNS, arrow_schema, check_columns
from ...server.storage.disk.filesystem import OsFileSystem, sync_file
from ..segments.segment_damage import DamagedSegmentError, ReadMode
from ..segments.segment_reader import SegmentRead, read_split
from .log_pieces import LogSource, Splits, plan_pieces
from .manifest import JobError, Manifest, Piece, Result, absolute, replace_file
from .writers import FileWriter, ToLine, open_writer

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST: Final = "_triolog_export.json"
SUCCESS: Final = "_SUCCESS"
TEMPORARY: Final = "_temporary"
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
ROW_GROUP_BYTES: Final = 32 * MIB
MAX_OPEN_DAYS: Final = 32
"""Days that a piece writes at the same time; with more the fullest file is closed, and its day gets another one."""
READ_RECORDS: Final = 200_000
REPAIR: Final = "`triolog verify` shows all damage of a stopped directory, `triolog repair` takes it out of the log"
_DAY_US: Final = 86_400_000_000
_DEFAULT_COLUMNS: Final = tuple(name for name in COLUMNS if name != "topic")


class DamagedLogError(TriologError):
    """A part of a segment that cannot be read, and what to do about it."""


@attrs.frozen(kw_only=True)
class Export:
    """The settings of an export. `columns` omits the topic, which is in the path."""

    source: LogSource
    target: str = attrs.field(converter=absolute)
    columns: tuple[str, ...] = attrs.field(default=_DEFAULT_COLUMNS)
    compression: str = "zstd"
    format: str = "parquet"
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    """Records of these times only, in ms, from `start_timestamp` on and before `end_timestamp`."""

    def __attrs_post_init__(self) -> None:
        check_columns(self.columns)


@attrs.frozen(kw_only=True)
class Exported:
    """The totals of the exported files."""

    records: int
    files: int
    size_bytes: int


def begin(job: Export) -> tuple[Manifest, list[Piece[Splits]]]:
    """The manifest, a new one or an earlier run's, and all pieces. JobError, ManifestError, StorageError, OSError."""
    target = Path(job.target)
    settings = attrs.asdict(job, filter=lambda field, _: field.name != "target")
    _check_target(target)
    manifest = Manifest.open(target / MANIFEST, "export", settings)
    pieces = plan_pieces(job.source, manifest)
    shutil.rmtree(target / TEMPORARY, ignore_errors=True)
    return manifest, pieces


def finish(job: Export, manifest: Manifest, results: Sequence[Result]) -> Exported:
    """All pieces are done. OSError."""
    target = Path(job.target)
    shutil.rmtree(target / TEMPORARY, ignore_errors=True)
    manifest.complete()
    replace_file(target / SUCCESS, b"")
    return Exported(
        records=sum(result["records"] for result in results),
        files=sum(len(result["files"]) for result in results),
        size_bytes=sum(result["size_bytes"] for result in results),
    )


def _check_target(target: Path) -> None:
    if target.exists() and not (target / MANIFEST).exists():
        found = sorted(path.name for path in target.iterdir() if path.name != f"{MANIFEST}.tmp")
        if found:
            raise JobError(
                f"{target} holds {found[0]} and no {MANIFEST}, so it is not an export to continue. Use a new or an empty folder"
            )


def export_piece(
    job: Export, splits: Splits, to_line: ToLine | None = None, progress: Callable[[int, int], None] = lambda *_: None
) -> Result:
    """Write the files of one piece; text has `to_line`. DamagedLogError, SegmentGoneError, OSError.

    `progress` is told the bytes of log and the records that were done since it was called before.
    """
    first = splits[0]
    name = f"part-{first.partition:05}-{max(first.low, first.first_offset):020}"
    files = _DayFiles(job, Path(job.target), first.topic, name, to_line)
    try:
        columns = tuple(dict.fromkeys((*job.columns, "timestamp", "offset")))
        read = SegmentRead(
            columns=columns,
            mode=ReadMode.FAILFAST,
            max_records=READ_RECORDS,
            start_timestamp=job.start_timestamp,
            end_timestamp=job.end_timestamp,
        )
        for split in splits:
            for batch in read_split(split, read):
                files.take(batch)
                progress(0, batch.num_rows)
            progress(split.size_bytes, 0)
        return files.commit()
    except DamagedSegmentError as exc:
        raise DamagedLogError(f"{exc.path}: position {exc.position}: {exc.reason}; {REPAIR}") from exc
    finally:
        files.discard()


@attrs.define(eq=False, repr=False)
class _Open:
    """A file that is being written."""

    writer: FileWriter
    path: Path
    buffered: list[pa.RecordBatch] = attrs.field(factory=list)
    buffered_bytes: int = 0
    rows: int = 0


@attrs.define(eq=False, repr=False)
class _DayFiles:
    """The files of one piece. Owner: its task."""

    _job: Export
    _target: Path
    _topic: str
    _name: str
    _to_line: ToLine | None
    _folder: Path = attrs.field(init=False)
    _open: dict[str, _Open] = attrs.field(factory=dict)
    _written: dict[str, list[Path]] = attrs.field(factory=dict)
    _records: int = 0
    _first_offset: int = -1
    _last_offset: int = -1

    def __attrs_post_init__(self) -> None:
        self._folder = self._target / TEMPORARY / f"{self._topic}-{self._name}-{uuid.uuid4().hex}"

    def take(self, batch: pa.RecordBatch) -> None:
        """Rows, in the order of their offsets."""
        import numpy as np
        import pyarrow as pa

        offsets = batch.column("offset")
        if self._first_offset < 0:
            self._first_offset = offsets[0].as_py()
        self._last_offset = offsets[len(offsets) - 1].as_py()
        self._records += batch.num_rows
        times = batch.column("timestamp").view(pa.int64()).to_numpy()
        days = times // _DAY_US
        rows = batch.select(list(self._job.columns))
        for day in np.unique(days).tolist():
            chosen = rows if days[0] == days[-1] == day and (days == day).all() else rows.filter(pa.array(days == day))
            self._take_day(_day_text(day), chosen)

    def commit(self) -> Result:
        """Close all files, force them to the device and give them their names."""
        for day in list(self._open):
            self._close(day)
        fs = OsFileSystem()
        files: list[str] = []
        size = 0
        for day, paths in self._written.items():
            for number, path in enumerate(paths):
                relative = f"topic={self._topic}/day={day}/{self._name}{f'-{number}' if number else ''}.{self._job.format}"
                final = self._target / relative
                final.parent.mkdir(parents=True, exist_ok=True)
                size += path.stat().st_size
                sync_file(fs, str(path))
                path.rename(final)
                files.append(relative)
        for folder in {parent for name in files for parent in Path(name).parents}:
            fs.sync_directory(str(self._target / folder))
        return {
            "records": self._records,
            "first_offset": self._first_offset,
            "last_offset": self._last_offset,
            "files": files,
            "size_bytes": size,
        }

    def discard(self) -> None:
        """Whatever has no name yet goes."""
        for file in self._open.values():
            with contextlib.suppress(OSError):  # what went wrong before, a full disk, is what people have to be told
                file.writer.close()
        self._open.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take_day(self, day: str, rows: pa.RecordBatch) -> None:
        file = self._open.get(day)
        if file is None:
            file = self._open[day] = self._create(day)
        file.buffered.append(rows)
        file.buffered_bytes += rows.nbytes
        file.rows += rows.num_rows
        if file.buffered_bytes >= ROW_GROUP_BYTES:
            _write(file)

    def _create(self, day: str) -> _Open:
        if len(self._open) >= MAX_OPEN_DAYS:
            self._close(max(self._open, key=lambda each: self._open[each].rows))
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{day}-{len(self._written.get(day, ()))}.{self._job.format}"
        schema = arrow_schema(self._job.columns)
        return _Open(open_writer(self._job.format, path, schema, self._job.compression, self._topic, self._to_line), path)

    def _close(self, day: str) -> None:
        file = self._open.pop(day)
        _write(file)
        file.writer.close()
        self._written.setdefault(day, []).append(file.path)


def _write(file: _Open) -> None:
    import pyarrow as pa

    if file.buffered:
        file.writer.write(pa.Table.from_batches(file.buffered))
    file.buffered, file.buffered_bytes = [], 0


def _day_text(day: int) -> str:
    """Timestamps before 1970 are those of records without one."""
    if day < 0:
        return NO_DAY
    try:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()
    except OverflowError:
        return NO_DAY
