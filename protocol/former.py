"""Names of earlier releases. Each works for one more release, warns with DeprecationWarning, and names its replacement.

Every message starts with `triolog:`, so `-W error:triolog:DeprecationWarning` finds each use of one.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_OURS: Final = (__name__.partition(".")[0], "contextlib")
"""Packages whose frames the warning passes over, so that it shows the line of the program."""


def warn_former(former: str, new: str) -> None:
    """Warn the program that calls: `former` is replaced by `new`."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"triolog: {former} is a former name; use {new}", DeprecationWarning, stacklevel=level)


def former_keywords(**renamed: str | None) -> Callable[[F], F]:
    """Accept former names of parameters, each with its new name; None: the parameter has no effect any more."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            for former, new in renamed.items():
                if former not in options:
                    continue
                value = options.pop(former)
                warn_former(f"{former}= of {function.__qualname__}", "no such argument" if new is None else f"{new}=")
                if new in options:
                    raise TypeError(f"given twice: {former}= and {new}=")
                if new is not None:
                    options[new] = value
            return function(*arguments, **options)

        return call  # type: ignore[return-value]

    return decorate
