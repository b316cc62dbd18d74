"""The pieces of a job over whole logs, and the error that reports failed pieces."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import attrs

from ...protocol.errors import TriologError

T = TypeVar("T")

Result = dict[str, Any]
"""What a piece answers; the same when it is run again."""


class JobError(TriologError):
    """Pieces that failed. What succeeded is in the manifest, if the job has one: a second run does the rest."""


@attrs.frozen
class Piece(Generic[T]):
    """A part of a job that one task does."""

    name: str
    size_bytes: int
    what: T
