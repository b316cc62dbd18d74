"""Regular expressions that clients send. They are matched by RE2, as in Kafka, whose time grows with the text only: Python's
own could be made to run for ever, and with it the server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from .errors import ErrorCode, RequestError

MAX_PATTERN_CHARS: Final = 1000
MAX_PATTERN_BYTES: Final = 1 << 20
"""Memory of a compiled pattern."""


def load_patterns() -> None:
    """Import RE2 now, where it is installed, and not with the first pattern."""
    with contextlib.suppress(ImportError):
        import re2  # noqa: F401


def compiled_pattern(text: str) -> Callable[[str], bool]:
    """Whether a whole string matches. Raises RequestError: INVALID_REGULAR_EXPRESSION."""
    try:
        import re2
    except ImportError:
        raise RequestError(
            "regular expressions need the package google-re2: install triolog[regex] where the server runs",
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ) from None
    if len(text) > MAX_PATTERN_CHARS:
        raise RequestError(
            f"a regular expression has at most {MAX_PATTERN_CHARS} characters, this one {len(text)}",
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        )
    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as exc:
        raise RequestError(f"{text!r} is no regular expression of RE2: {exc}", ErrorCode.INVALID_REGULAR_EXPRESSION) from exc
    return lambda name: pattern.fullmatch(name) is not None
