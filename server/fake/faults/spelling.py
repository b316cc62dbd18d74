"""Names that a test has misspelt: the error has the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_NAMES: Final = 10


def hint(name: str, known: Iterable[str]) -> str:
    """How an error about an unknown name continues."""
    import difflib  # for errors alone

    names = sorted(known)
    near = [each for each in names if each.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1)
    if near:
        return f" (did you mean {near[0]!r}?)"
    more = ", ..." if len(names) > MOST_NAMES else ""
    return f" (known: {', '.join(names[:MOST_NAMES])}{more})" if names else ""
