"""What compaction has done since the start: numbers that outlive the cleaner, which is loaded when it is first due."""

from __future__ import annotations

import attrs


@attrs.define(eq=False, repr=False)
class CleanerCounters:
    """Changed by the cleaner's task only."""

    rounds: int = 0
    """That ended well."""
    given_up: int = 0
    """Because topic or log changed under them."""
    failed: int = 0
    bytes_before: int = 0
    """Sizes of the logs before the rounds that ended well, and after them."""
    bytes_after: int = 0
    seconds: float = 0.0
    uncleanable: int = 0
    """Partitions that are left alone until the next start."""
    cleaning: str | None = None
    """The partition that is compacted right now."""

    def done(self, bytes_before: int, bytes_after: int, seconds: float) -> None:
        """A round ended well."""
        self.rounds += 1
        self.bytes_before += bytes_before
        self.bytes_after += bytes_after
        self.seconds += seconds
