"""Writes the findings of `triolog dump` as they occur: columns for people, JSON lines for programs.

A report gets, per file, rows (batches, records, entries, lines) and the outcome of every check. A row is a flat dictionary;
its first key says what it is. JSON lines carry `file` and `type`; the last one of a file is its `verdict`.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from ..terminal.output import as_json_value, json_line, printable, say_parts, shown, write
from ..terminal.times import Zone, format_time

Row = dict[str, Any]

_TABLES: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    "batch": (
        *(("position", "position", ">10"), ("offsets", "offsets", "<23"), ("records_count", "records", ">7")),
        *(("bytes", "bytes", ">9"), ("codec", "codec", "<6"), ("time", "largest timestamp", "<29")),
        *(("crc", "CRC", "<6"), ("structure", "walk", "<6"), ("more", "", "")),
    ),
    "offset_entry": (("slot", "slot", ">10"), ("offset", "offset", ">20"), ("position", "position", ">10")),
    "time_entry": (
        *(("slot", "slot", ">10"), ("time", "time", "<29"), ("timestamp", "timestamp", ">20"), ("offset", "offset", ">20")),
    ),
    "aborted_txn": (
        *(("slot", "slot", ">10"), ("producer_id", "producer", ">15"), ("first_offset", "first offset", ">12")),
        *(("last_offset", "marker", ">12"), ("last_stable_offset", "last stable offset", ">18")),
    ),
    "producer": (
        *(("producer_id", "producer", ">15"), ("epoch", "epoch", ">6"), ("last_sequence", "sequence", ">10")),
        *(("last_offset", "last offset", ">12"), ("offset_delta", "delta", ">6"), ("time", "last timestamp", "<29")),
        *(("coordinator_epoch", "coordinator", ">11"), ("open_from", "open from", ">12")),
    ),
    "earlier_batch": (
        *(("producer_id", "producer", ">15"), ("last_sequence", "sequence", ">10"), ("last_offset", "last offset", ">12")),
        *(("offset_delta", "delta", ">6"), ("time", "timestamp", "<29")),
    ),
}
"""Kind of row -> key, heading and format of each column."""
_LINES: Final = {
    "record": "            {offset:<12}  {time:<29}  {key} : {value}{headers}",
    "line": "  {text}",
    **{kind: "  ".join(f"{{{key}:{form}}}" for key, _, form in columns) for kind, columns in _TABLES.items()},
}


class Report(Protocol):
    """The receiver of findings. `failed` counts the checks that failed."""

    failed: int
    with_rows: bool

    def begin(self, path: str, kind: str) -> None:
        """The findings that follow are of this file."""
        ...

    def row(self, kind: str, row: Row) -> None:
        """Add one batch, record, entry or line."""
        ...

    def check(self, name: str, failure: str | None, note: str = "") -> None:
        """A check was made: `failure` says what is wrong, None that all is well; `note` says more."""
        ...

    def end(self) -> None:
        """There is nothing more to say about the file."""
        ...


class JsonReport:
    """A report that writes one JSON object a line."""

    def __init__(self, *, with_rows: bool) -> None:
        self.failed = 0
        self.with_rows = with_rows
        self._path = ""
        self._checks = self._failed_before = 0

    def begin(self, path: str, kind: str) -> None:
        self._path = path
        self._checks, self._failed_before = 0, self.failed
        self._write("file", {"kind": kind.removeprefix(".")})

    def row(self, kind: str, row: Row) -> None:
        if kind == "record":
            row = {**row, "key": as_json_value(row["key"]), "value": as_json_value(row["value"])}
            row["headers"] = [[name, as_json_value(value)] for name, value in row["headers"]]
        self._write(kind, row)

    def check(self, name: str, failure: str | None, note: str = "") -> None:
        self._checks += 1
        self.failed += failure is not None
        self._write("check", {"check": name, "ok": failure is None, "failure": failure, "note": note or None})

    def end(self) -> None:
        failed = self.failed - self._failed_before
        self._write("verdict", {"ok": not failed, "checks": self._checks, "failed": failed})

    def _write(self, kind: str, row: Row) -> None:
        write(json_line({"file": self._path, "type": kind, **row}))


class TextReport:
    """Lines for people: the rows in columns, then a line for each check."""

    def __init__(self, zone: Zone, *, with_rows: bool) -> None:
        self.failed = 0
        self.with_rows = with_rows
        self._zone = zone
        self._headed: str | None = None
        self._failed_before = 0

    def begin(self, path: str, kind: str) -> None:
        self._headed, self._failed_before = None, self.failed
        say_parts((path, {"bold": True}))

    def row(self, kind: str, row: Row) -> None:
        if self._headed is None and kind in _TABLES:
            self._headed = kind
            headings = {key: heading for key, heading, _ in _TABLES[kind]}
            say_parts((_LINES[kind].format_map(headings).rstrip(), {"dim": True}))
        say_parts((_LINES[kind].format_map(self._cells(kind, row)).rstrip(), {}))

    def check(self, name: str, failure: str | None, note: str = "") -> None:
        self.failed += failure is not None
        verdict: tuple[str, dict[str, Any]] = ("ok", {"fg": "green"})
        if failure is not None:
            verdict = "FAILED", {"fg": "red", "bold": True}
        said = "; ".join(text for text in (failure, note) if text)
        say_parts((f"  {name}: ", {}), verdict, (f" ({said})" if said else "", {}))

    def end(self) -> None:
        failed = self.failed - self._failed_before
        if failed:
            say_parts((f"  {failed} check{'s' if failed > 1 else ''} FAILED", {"fg": "red", "bold": True}))

    def _cells(self, kind: str, row: Row) -> Row:
        if "timestamp" in row:
            row = {**row, "time": format_time(row["timestamp"], self._zone)}
        if kind == "batch":
            return {
                **row,
                "offsets": f"{row['base_offset']}..{row['last_offset']}",
                "time": format_time(row["max_timestamp"], self._zone),
                "crc": "ok" if row["crc_ok"] else "FAILED",
                "structure": {True: "ok", False: "FAILED", None: "-"}[row["structure_ok"]],
                "more": _more(row),
            }
        if kind == "producer":
            first_offset = row["current_txn_first_offset"]
            return {**row, "open_from": "-" if first_offset is None else first_offset}
        if kind == "record":
            headers = ", ".join(f"{printable(name)}: {shown(value)}" for name, value in row["headers"])
            cells = {"key": shown(row["key"]), "value": shown(row["value"])}
            said = f"  [{printable(row['says'])}]" if row["says"] is not None else ""
            return {**row, **cells, "headers": (f"  {{{headers}}}" if headers else "") + said}
        return {**row, "text": printable(row["text"])} if kind == "line" else row


def _more(row: Row) -> str:
    """Return the fields of a batch row that only some batches have."""
    parts = [f"epoch {row['leader_epoch']}"]
    if row["producer_id"] >= 0:
        parts.append(f"producer {row['producer_id']} epoch {row['producer_epoch']} sequence {row['base_sequence']}")
    return ", ".join([*parts, *row["flags"]])
