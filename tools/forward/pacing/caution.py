"""Finding the one record that an upstream does not take among the many that were sent with it.

Errors are answered for a batch. After a refusal the partition's next stretch has an eighth of the records, and so on down to
one: if that is refused it is the one. What goes well meanwhile is committed, and the stretches grow again. A refusal costs a
session, which takes longer than eight commits do.
"""

from __future__ import annotations

from typing import Final

NO_LIMIT: Final = 2**62
CAREFUL_RECORDS: Final = 1024
"""As many records in a row without a refusal, and a partition is trusted again."""

CUT: Final = 8


class Caution:
    """How many records of a partition may go together. Owner: the link."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[str, int], int] = {}

    def limit(self, partition: tuple[str, int]) -> int:
        return self._limits.get(partition, NO_LIMIT)

    def is_careful(self, partition: tuple[str, int]) -> bool:
        return partition in self._limits

    def refused(self, partition: tuple[str, int], sent: int) -> bool:
        """Some of `sent` records were; True when that is one record, which it must have been."""
        self._limits[partition] = max(1, min(sent, CAREFUL_RECORDS) // CUT)
        return sent == 1

    def accepted(self, partition: tuple[str, int], sent: int) -> None:
        """So many were taken."""
        limit = self._limits.get(partition)
        if limit is None or sent < limit:
            return
        if limit * 2 > CAREFUL_RECORDS:
            del self._limits[partition]
        else:
            self._limits[partition] = limit * 2
