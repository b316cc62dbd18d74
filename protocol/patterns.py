"""Regular expressions that clients send. They are matched by RE2, as in Kafka, whose time grows with the text only: Python's
own could be made to run for ever, and with it the server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from .errors import ErrorCode, RequestError, UnsupportedVersionError
from .extras import how_to_install

MAX_PATTERN_CHARS: Final = 1000
MAX_PATTERN_BYTES: Final = 1 << 20
"""Memory of a compiled pattern."""
MISSING: Final = f"regular expressions need the package google-re2 where the server runs: {how_to_install('regex')}"


@functools.cache
def _re2() -> Any:
    """RE2, or None where it is not installed. Imported once: a process at its limit of open files can load nothing."""
    try:
        import re2
    except ImportError:
        return None
    return re2


def load_patterns() -> bool:
    """Import RE2 now and not with the first pattern. Whether it is installed: there is no wheel for every machine."""
    return _re2() is not None


def compiled_pattern(text: str) -> Callable[[str], bool]:
    """Return a function that reports whether a whole string matches. Raises RequestError: INVALID_REGULAR_EXPRESSION;
    UNSUPPORTED_VERSION where RE2 is not installed, as Kafka's brokers return for features that they lack."""
    if (re2 := _re2()) is None:
        raise UnsupportedVersionError(MISSING)
    if len(text) > MAX_PATTERN_CHARS:
        raise RequestError(
            f"a regular expression has at most {MAX_PATTERN_CHARS} characters, this one has {len(text)}",
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        )
    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as exc:
        raise RequestError(f"{text!r} is not a regular expression of RE2: {exc}", ErrorCode.INVALID_REGULAR_EXPRESSION) from exc
    return lambda name: pattern.fullmatch(name) is not None
