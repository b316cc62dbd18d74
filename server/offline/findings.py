"""The findings of a check of files, as values, and the observer that receives them during the check.

Damage is data that contradicts itself, the log or its own name: `verify` ends with exit code 1. A remark is worth knowing and
not a fault: space that was preallocated, bytes that were set aside before, an unclean shutdown of the server.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from ...protocol.types import TopicPartition

MAX_PLACES_NAMED: Final = 3


class Severity(enum.Enum):
    DAMAGE = "damage"
    REMARK = "remark"


@attrs.frozen(kw_only=True)
class Finding:
    """A finding; `first_offset` to `next_offset` (exclusive) are the offsets it concerns, if known."""

    severity: Severity
    check: str
    """Which check found it, in a word or two."""
    file: str
    reason: str
    position: int | None = None
    size: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    count: int = 1
    """How many places in the file have it; `reason` names the first ones."""


class Observer:
    """Is told what happens; every call is made in the thread that does the work. As it is, it ignores all of it."""

    def begin(self, topic_partition: TopicPartition, log_bytes: int) -> None:
        """Work begins on a partition with this many bytes of log."""

    def advance(self, log_bytes: int, records: int) -> None:
        """This much more of it is done."""

    def found(self, finding: Finding) -> None:
        """There is something to be said."""

    def damage(self, check: str, file: str, reason: str | None, **where: int) -> None:
        """Report damage, unless `reason` is None. `where`: position, size, first_offset, next_offset, count."""
        if reason is not None:
            self.found(Finding(severity=Severity.DAMAGE, check=check, file=file, reason=reason, **where))

    def remark(self, check: str, file: str, reason: str | None, **where: int) -> None:
        """Report a remark in the same way."""
        if reason is not None:
            self.found(Finding(severity=Severity.REMARK, check=check, file=file, reason=reason, **where))


@attrs.define(eq=False, repr=False)
class Collector(Observer):
    """Keeps what is found, and hands all on to another observer."""

    _observer: Observer = attrs.field(factory=Observer)
    findings: list[Finding] = attrs.field(factory=list)

    @property
    def damages(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.DAMAGE]

    def begin(self, topic_partition: TopicPartition, log_bytes: int) -> None:
        self._observer.begin(topic_partition, log_bytes)

    def advance(self, log_bytes: int, records: int) -> None:
        self._observer.advance(log_bytes, records)

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._observer.found(finding)


@attrs.define(eq=False, repr=False)
class FaultTally:
    """Many faults of one kind in one file as one reason: the first few in words, and how many there are."""

    _named: list[str] = attrs.field(factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        self.count += 1
        if len(self._named) < MAX_PLACES_NAMED:
            self._named.append(text)

    @property
    def text(self) -> str | None:
        """All of it in one line, None when nothing is wrong."""
        if not self.count:
            return None
        more = f", and {self.count - len(self._named)} more" if self.count > len(self._named) else ""
        return "; ".join(self._named) + more
