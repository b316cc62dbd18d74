"""Prints the findings of `verify` and `repair`: lines or JSON lines, with a progress bar on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....server.offline.findings import Observer
from .output import flush, json_line, printable, say_parts, warn, write
from .progress import NoProgress, ProgressBar
from .stopped import relative

if TYPE_CHECKING:
    from ....protocol.types import TopicPartition
    from ....server.offline.findings import Finding
    from ....server.storage.directory.inventory import StoppedDirectory


class Findings(Observer):
    """An observer that prints what is found and moves the bar. `damages` and `remarks` count."""

    def __init__(
        self, directory: StoppedDirectory, bar: ProgressBar | NoProgress, *, as_json: bool, quiet: bool = False
    ) -> None:
        self._directory = directory
        self._bar = bar
        self._as_json = as_json
        self._quiet = quiet
        self._bytes = 0
        self._records = 0
        self.damages = 0
        self.remarks = 0
        self.damages_here = 0
        """In the partition that is being looked at."""

    def begin(self, topic_partition: TopicPartition, log_bytes: int) -> None:
        self.damages_here = 0

    def advance(self, log_bytes: int, records: int) -> None:
        self._bytes += log_bytes
        self._records += records
        self._bar.update(done_bytes=self._bytes, records=self._records)

    def found(self, finding: Finding) -> None:
        is_damage = finding.severity.value == "damage"
        self.damages += is_damage
        self.damages_here += is_damage
        self.remarks += not is_damage
        if self._quiet:
            return
        self._bar.step_aside()
        if self._as_json:
            write(json_line({"type": "finding", **finding_row(finding, self._directory)}))
        else:
            style = {"fg": "red", "bold": True} if is_damage else {"fg": "yellow"}
            say_after("damage" if is_damage else "remark", finding_text(finding, self._directory), **style)


class Warnings(Observer):
    """An observer for commands that only use what files say: damage is a line on standard error, and nothing else is said."""

    def __init__(self, directory: StoppedDirectory) -> None:
        self._directory = directory

    def found(self, finding: Finding) -> None:
        if finding.severity.value == "damage":
            warn(f"{finding_text(finding, self._directory)}. `triolog repair --dry-run` shows the repairs")


def finding_row(finding: Finding, directory: StoppedDirectory) -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "check": finding.check,
        "file": relative(finding.file, directory),
        "position": finding.position,
        "size": finding.size,
        "first_offset": finding.first_offset,
        "next_offset": finding.next_offset,
        "reason": finding.reason,
    }


def finding_text(finding: Finding, directory: StoppedDirectory) -> str:
    """File, place, check and reason in one line."""
    where = relative(finding.file, directory)
    details = []
    if finding.size is not None:
        details.append(f"{finding.size:,} bytes at position {finding.position}")
    elif finding.position is not None:
        details.append(f"at position {finding.position}")
    if finding.first_offset is not None and finding.next_offset is not None and finding.next_offset > finding.first_offset:
        last = finding.next_offset - 1
        offsets = f"offset {last}" if last == finding.first_offset else f"offsets {finding.first_offset} to {last}"
        details.append(offsets)
    place = f" ({', '.join(details)})" if details else ""
    return f"{where}{place}: {finding.check}: {printable(finding.reason)}"


def say_after(word: str, text: str, **style: Any) -> None:
    """A line that begins with a word in a style, as `click.style` takes it."""
    say_parts((word, style), (f"  {text}", {}))
    flush()
