"""What a reader asks of record batches."""

from __future__ import annotations

import attrs

from ...limits import INT64_MAX
from .schema import check_columns


@attrs.frozen
class Wanted:
    """Which columns of which records. `low` is inclusive, `high` exclusive. ValueError for unknown or repeated columns."""

    topic: str
    partition: int
    columns: tuple[str, ...] = attrs.field()
    low: int = 0
    high: int = INT64_MAX
    check_crcs: bool = False

    @columns.validator
    def _check_columns(self, _: object, columns: tuple[str, ...]) -> None:
        check_columns(columns)
