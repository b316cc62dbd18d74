"""Ids of the copies that pipes make. It imports nothing: each process of a soak has it, and would load the server otherwise."""

from __future__ import annotations

from typing import Final

COPY: Final = "copy of "


def copy_id(original: str, transaction: str) -> str:
    """The id of a copy that a pipe makes in a transaction."""
    return f"{COPY}{original} by {transaction}"


def copied(copy: str) -> tuple[str, str]:
    """Of what a copy is, and by which transaction."""
    original, _, transaction = copy.removeprefix(COPY).rpartition(" by ")
    return original, transaction
