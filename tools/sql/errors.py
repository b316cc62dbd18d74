"""What a question gets that cannot be answered, in one line."""

from __future__ import annotations

from typing import Final

from ...protocol.errors import TriologError

_DETAIL: Final = (" Detail: Python exception", " LINE 1:", "\n\nLINE ")


class SqlError(TriologError):
    """SQL that fails, a topic or an option that makes no sense."""


def one_line(error: Exception) -> str:
    """DuckDB's message without the copy of the question and the stack that it may hold."""
    text = str(error)
    for mark in _DETAIL:
        text = text.partition(mark)[0]
    return " ".join(text.split())
