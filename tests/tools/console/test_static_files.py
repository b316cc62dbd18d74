from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from triolog.tools.console.dispatch import FOLDER, MAX_TOTAL_BYTES, StaticFiles

from .conftest import Shown

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
SVG = "http://www.w3.org/2000/svg"
IMPORTED = re.compile(r"""from "([^"]+)"|import\("([^"]+)"\)""")


async def test_a_file_is_kept_for_ever_at_an_address_that_changes_with_it_and_nothing_else_is_sent(shown: Shown) -> None:
    base = StaticFiles.read().base
    page = (await shown.browser.open("/")).text
    for path in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert path.startswith(base)
        found = await shown.browser.get(path)
        assert (found.status, found.body) == (200, StaticFiles.read().files[path.removeprefix(base)].content)
        assert "immutable" in found.headers["cache-control"]
        packed = await shown.browser.get(path, accept_encoding="gzip, br")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == found.body
    assert (await shown.browser.get("/favicon.ico")).headers["content-type"] == "image/svg+xml"
    for path in ("/static/", "/static/0/app.js", "{}../dispatch.py", "{}%2e%2e/dispatch.py", "{}views", "{}nothing.js"):
        assert (await shown.browser.get(path.format(base))).status == 404, path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_browsers_get_all_that_is_not_a_comment_and_what_a_script_imports_is_there(path: Path) -> None:
    """No string and no template has several lines, of which the indentation would go."""
    text = path.read_text()
    for static, dynamic in IMPORTED.findall(text):
        assert (path.parent / (static or dynamic)).is_file()
    assert all(line.count("`") % 2 == 0 for line in text.splitlines())
    shipped = StaticFiles.read().files[path.relative_to(FOLDER).as_posix()].content.decode()
    gone = [line.strip() for line in text.splitlines() if line.strip() and line.strip() not in shipped.splitlines()]
    assert all(line.startswith(("//", "/*", "*")) for line in gone), gone


def test_all_files_are_known_and_small_together() -> None:
    files = StaticFiles.read().files
    assert {path.relative_to(FOLDER).as_posix() for path in FILES} == files.keys()
    assert sum(len(each.content) for each in files.values()) <= MAX_TOTAL_BYTES
    assert sum(len(each.compressed) for each in files.values()) <= MAX_TOTAL_BYTES / 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_asked_for_elsewhere_and_no_markup_is_made_of_text(path: Path) -> None:
    text = path.read_text().replace(SVG, "")
    assert "://" not in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|javascript:", text)
    assert not re.search(r"<[^>]+\s(?:on\w+|style)=", text)
