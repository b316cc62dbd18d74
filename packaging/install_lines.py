"""Let the documentation install triolog as `IS_ON_PYPI` in protocol/extras.py says: from a clone, or from PyPI.

    make install-lines

Run it on the day of the first release, after IS_ON_PYPI is True. Running it again changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FORMS: Final = (
    ("pip install '.[", "pip install 'triolog["),
    ("`pip install .` alone", "`pip install triolog` alone"),
    ("PyPI has no release yet, so install it from a clone", "Install it from PyPI"),
    (
        "No release exists yet, so the newest commit of `main` gets fixes. Later the newest release will get them.",
        "The newest release gets fixes.",
    ),
    ("No release exists yet. This page is the policy from the first release on.", "This page is the policy for all releases."),
)
"""The text of a page before the first release, and after it."""


def is_on_pypi() -> bool:
    """Return the constant, without importing what is perhaps not installed."""
    found = re.search(r"^IS_ON_PYPI: Final = (True|False)$", (ROOT / "protocol/extras.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1] == "True"


def pages() -> Iterator[Path]:
    """The pages that a user reads; the changelog says what was true."""
    yield from (path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md")
    yield from (ROOT / "docs").rglob("*.md")


def switched(text: str, *, released: bool) -> str:
    """Return a page as it is before or after the first release."""
    for before, after in FORMS:
        text = text.replace(before, after) if released else text.replace(after, before)
    return text


def main() -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := switched(text, released=is_on_pypi())) != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
