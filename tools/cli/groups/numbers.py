"""Numbers in the tables of `triolog groups`."""

from __future__ import annotations


def number(value: int | None) -> str:
    """`1,234`, or `-` where there is none."""
    return "-" if value is None else f"{value:,}"
