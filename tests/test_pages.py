"""The pages beside quickstarts, tutorials and cookbook: their programs run, their commands are typed, their files are read.

`prepared_pages` has the things that pages take for granted, and the blocks that no test runs, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from triolog import blocking

from tests.support.followed_page import Reader, blocks, is_seen
from tests.support.prepared_pages import BLOCK, NOT_RUN, PREPARED

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
PAGES: Final = {
    str(path.relative_to(ROOT if path.parent == ROOT else DOCS)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if "benchmarks" not in path.parts
}

MEASURED: Final = re.compile(
    r"20[2-9]\d-\d\d-\d\d(?:T[\d:.]+Z)?"
    r"|\d[\d,.]* ?(?:[KkMG]i)?B(?:/s)?(?![\w/])"
    r"|\d[\d,.]*(?= ?(?:[kMG]i?B|B|m?s|minutes|hours|days|%|records/s|/s|x the|bytes)(?:\b|/|$))"
    r"|\b\d+(?:\.\d+)+\b|\b\d\d:\d\d:\d\d\b|(?<=127\.0\.0\.1:)\d{5}|\b1099511\d+"
)


def is_measured(wanted: str, printed: str) -> bool:
    """Whether a command printed the page's lines, up to times, durations, rates, sizes, and the width of columns."""
    wanted, printed = (re.sub(r" +", " ", MEASURED.sub("N", re.sub("─+", "─", text))) for text in (wanted, printed))
    return is_seen(wanted, printed)


def prepared(name: str) -> str:
    page = PAGES[name]
    for first, text in PREPARED.get(name, {}).items():
        (block,) = re.findall(rf"^```\w[^\n]*\n{re.escape(first)}.*?^```\n", page, re.MULTILINE | re.DOTALL)
        before, _, after = text.partition(BLOCK)
        page = page.replace(block, f"{before}{block}{after}")
    return page


BY_OTHERS: Final = re.compile(r"README\.md|cookbook\.md|tutorials/.*|quickstart/.*")
"""Pages that `test_readme.py`, `test_site.py` and `test_tutorials.py` follow."""
FOLLOWED: Final = [
    name
    for name, page in PAGES.items()
    if re.search(r"^```(?:(?:console|python)$|.* title=)", page, re.MULTILINE) and not BY_OTHERS.fullmatch(name)
]
FENCE: Final = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TYPED: Final = re.compile(r"^(?:[$>] |(?:triolog|make|curl|pip|python3?|kafka-\S+) |from \w+ import|import )", re.MULTILINE)


@pytest.mark.merge
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_a_page_says_happens(name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        places = {"/var/lib/": f"{tmp_path}/", "/mnt/card/": f"{tmp_path}/", "127.0.0.1:9309": "127.0.0.1:0"}
        if "kafka.example" in PAGES[name]:
            upstream = stack.enter_context(blocking.open(kafka="127.0.0.1:0"))
            places["kafka.example:9092"] = upstream.bootstrap_servers
        reader = stack.enter_context(Reader(tmp_path, places=places, is_seen=is_measured))
        assert reader.follow(prepared(name)) > 0


def unexplained(page: str, reasons: Mapping[str, str]) -> list[str]:
    """The first lines of blocks that no test follows and no reason names, and the reasons without such a block."""
    found, needed = [], set()
    for indent, language, text in FENCE.findall(page):
        named = {first for first in reasons if text.startswith(first)}
        is_followed = (
            " title=" in language or language in ("console", "python") or (language == "text" and not TYPED.search(text))
        )
        if indent or is_followed == bool(named):
            found.append(text.partition("\n")[0])
        needed |= named
    outside = FENCE.sub("", page).splitlines()
    found += [line.strip() for line in outside if line.startswith("    ") and TYPED.match(line.strip())]
    return found + sorted(reasons.keys() - needed)


def test_every_block_is_followed_or_has_a_reason() -> None:
    assert {*NOT_RUN, *PREPARED} - PAGES.keys() == set()
    assert {name: lines for name, page in PAGES.items() if (lines := unexplained(page, NOT_RUN.get(name, {})))} == {}


@pytest.mark.parametrize(
    "page", ["```\nls\n```\n", "```text\n$ ls\n```\n", "Or:\n\n    $ ls\n", "  ```console\n  $ ls\n  ```\n"]
)
def test_a_block_that_no_reader_follows_is_reported(page: str) -> None:
    assert unexplained(page, {}) != []


def test_a_reason_for_a_block_that_runs_and_one_without_a_block_are_reported() -> None:
    assert unexplained("```console\n$ ls\n```\n```sh\nls\n```\n", {"$ ls": "", "ls": "", "cd": ""}) == ["$ ls", "cd"]


@pytest.mark.parametrize("name", FOLLOWED)
def test_every_file_of_a_page_is_used(name: str) -> None:
    found = blocks(prepared(name))
    for block in found:
        stem = (block.title or "").partition(".")[0]
        assert block.title is None or any(stem in other.text for other in found if other is not block), block.title
