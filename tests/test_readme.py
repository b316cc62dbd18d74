"""What the README says happens: its programs and commands are run in their order, and its links lead somewhere.

The block for pytest is run with those of docs/testing-with-triolog.md (`test_testing_docs.py`), `make demo` by its own tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.followed_page import Reader

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
LINK: Final = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")


def _anchors(page: str) -> set[str]:
    """Of a page's headings, as Markdown on the web makes them."""
    headings = re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_the_readme_says_happens(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert reader.follow(README) == 7


@pytest.mark.merge
@pytest.mark.timeout(900)
def test_its_program_for_spark_counts_what_was_sent(tmp_path: Path, jvm_options: str) -> None:
    with Reader(tmp_path, jvm_options) as reader:
        reader.follow(f"{README}\n```console\n$ python count.py 2> /dev/null\n1\n```\n")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_pages_at_the_root_lead_somewhere(name: str) -> None:
    links = [(path, anchor) for path, anchor in LINK.findall((ROOT / name).read_text(encoding="utf-8")) if "//" not in path]
    missing = [path for path, _ in links if not (ROOT / path).is_file()]
    assert missing == []
    lost = [f"{path}#{anchor}" for path, anchor in links if anchor and anchor not in _anchors((ROOT / path).read_text())]
    assert lost == []
