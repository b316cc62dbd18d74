"""The options of a read with `format("triolog_segments")`: a directory, and those options of `triolog` that need no server.

Bounds, selection, splits and columns are read by `options` and mean the same. Three defaults differ: everything in the
directory is read when nothing is selected, `isolationLevel` is read_committed, and CRCs are checked, since `mode` is about
damage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from ....protocol.limits import INT32_MAX
from ....protocol.types import Isolation
from ...segments.segment_damage import ReadMode
from ..option_table.option import Meaning, Option, OptionError, OptionTable
from ..option_table.reading import CHECK_CRCS, REQUEST_TIMEOUT, SERVERS, SERVERS_ALIAS
from ..sink.server_access import ACCESS, KAFKA_ACCESS
from ..sink.write_options import read_choice, read_number
from ..source.options import ISOLATION, KAFKA_ISOLATION, SELECTIONS, ReadOptions

PATHS: Final = ("path", "paths", "logDir")
SHARED: Final = (
    *SELECTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    ISOLATION,
    KAFKA_ISOLATION,
    "splitBytes",
    "arrowMaxRecords",
    "checkCrcs",
    CHECK_CRCS,
    "columns",
)
"""Options that mean what they mean to `triolog`."""
OF_SERVER: Final = (SERVERS, SERVERS_ALIAS, *ACCESS, *KAFKA_ACCESS, "kafkaConsumer.pollTimeoutMs", REQUEST_TIMEOUT, "leaseMs")
"""Options that only `snapshot=server` has a use for."""
OPTIONS: Final = OptionTable.of(
    "a read of segments",
    (Option(name, Meaning.OWN, "") for name in (*PATHS, "mode", "snapshot", *SHARED, *OF_SERVER)),
)

FILES: Final = "files"
SERVER: Final = "server"
LEASE_MS: Final = 600_000
_NO_SERVER: Final = "localhost:1"
"""Stands in for an address where no server is asked."""


@attrs.frozen(kw_only=True)
class SegmentOptions:
    """The options of one read, checked; docs/spark.md has the table."""

    paths: tuple[str, ...]
    """Log directories, or directories of partitions; empty when the server says where its files are."""
    read: ReadOptions
    """What is shared with `triolog`. Its address is the server's with `snapshot=server`, and nothing otherwise."""
    mode: ReadMode = ReadMode.PERMISSIVE
    snapshot: str = FILES
    lease_ms: int = LEASE_MS
    """How long files are kept for a task that waits for its turn; running ones renew it."""

    @property
    def is_committed(self) -> bool:
        """Return whether aborted and open transactions are left out."""
        return self.read.isolation is Isolation.READ_COMMITTED

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SegmentOptions:
        """Read Spark's options; OptionError."""
        given = {name.lower(): str(value).strip() for name, value in options.items()}
        OPTIONS.check(given)
        snapshot = read_choice("snapshot", given.get("snapshot", FILES), {FILES: FILES, SERVER: SERVER})
        paths = _paths(given)
        if snapshot == SERVER:
            if paths:
                raise OptionError(
                    f"option {_named(given, PATHS)} is refused with snapshot=server, because the server knows its files"
                )
        else:
            if not paths:
                raise OptionError("no directory is given. Name one with load(path), path or logDir, or set snapshot to server")
            if (name := _named(given, OF_SERVER)) is not None:
                raise OptionError(f"option {name} is refused with snapshot=files, which uses no server. Set snapshot to server")
            given[SERVERS_ALIAS] = _NO_SERVER
        mode = read_choice("mode", given.get("mode", "permissive"), {mode.value.lower(): mode for mode in ReadMode})
        lease_ms = read_number("leaseMs", given.get("leasems", str(LEASE_MS)), 1000, INT32_MAX)
        return cls(paths=paths, read=_shared(given), mode=mode, snapshot=snapshot, lease_ms=lease_ms)


def _shared(given: Mapping[str, str]) -> ReadOptions:
    own = {name.lower() for name in (*PATHS, "mode", "snapshot", "leaseMs")}
    shared = {name: value for name, value in given.items() if name not in own}
    if not any(name.lower() in shared for name in SELECTIONS):
        shared["subscribepattern"] = ".*"
    if KAFKA_ISOLATION not in shared:
        shared.setdefault(ISOLATION.lower(), Isolation.READ_COMMITTED.value)
    if CHECK_CRCS not in shared:
        shared.setdefault("checkcrcs", "true")
    return ReadOptions.from_options(shared, streaming=False)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    named = [name for name in PATHS if name.lower() in given]
    if len(named) > 1:
        raise OptionError(f"{' and '.join(named)} are given. Name the directory once")
    if not named:
        return ()
    text = given[named[0].lower()]
    if named[0] == "paths":
        try:
            paths = json.loads(text)
        except ValueError:
            paths = None
        if type(paths) is not list or any(type(path) is not str for path in paths):
            raise OptionError(f"option paths is {text!r}, expected a JSON list of directories, as load([...]) makes it")
    else:
        paths = [part.strip() for part in text.split(",")] if named[0] == "logDir" else [text]
    if not paths or not all(paths):
        raise OptionError(f"option {named[0]} is {text!r}, expected the name of a directory")
    return tuple(path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:") for path in paths)


def _named(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name.lower() in given), None)
