"""What a reader asks of record batches."""

from __future__ import annotations

import attrs

from ...limits import INT64_MAX
from .schema import TimestampUnit, check_columns


@attrs.frozen
class Wanted:
    """Which columns of which records. `low` is inclusive, `high` exclusive. ValueError for unknown or repeated columns.

    With a time bound (ms) the records with a timestamp from `start_timestamp` up to, exclusive, `end_timestamp` are meant, in
    whatever order those are; records without a timestamp are of no time then. Batches whose header says that no record is as
    late are not looked into.
    """

    topic: str
    partition: int
    columns: tuple[str, ...] = attrs.field()
    low: int = 0
    high: int = INT64_MAX
    check_crcs: bool = False
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    timestamp_unit: TimestampUnit = "us"

    @columns.validator
    def _check_columns(self, _: object, columns: tuple[str, ...]) -> None:
        check_columns(columns)

    @property
    def has_times(self) -> bool:
        """Whether timestamps decide, too."""
        return self.start_timestamp is not None or self.end_timestamp is not None

    @property
    def least_timestamp(self) -> int:
        """The least that a record may have; only with a time bound."""
        return max(0, self.start_timestamp or 0)

    def holds_timestamp(self, timestamp: int) -> bool:
        """Whether a record of this timestamp is meant, with a time bound."""
        return self.least_timestamp <= timestamp and (self.end_timestamp is None or timestamp < self.end_timestamp)
