"""A picture of each view, with a server behind it that has something to show: the documentation's, made by the run.

Every run makes them and judges them. `make console-pictures` (TRIOLOG_WRITE_PICTURES=1) writes them into
`docs/pictures/console`.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from playwright.sync_api import Browser, Page, expect
from triolog.tools.console.dispatch import ROUTES
from triolog.tools.demo.flights import DAY_END, DAY_START, NEW_YORK, TOPIC

from .browsing import PATIENCE_MS, Opened, opened
from .pictured_server import BEHIND, LINK, Pictured, pictured

KEPT: Final = Path(__file__).parents[2] / "docs" / "pictures" / "console"
WRITES: Final = bool(os.environ.get("TRIOLOG_WRITE_PICTURES"))
CHARTED_MS: Final = 125_000 if WRITES else 10_000
"""That charts show: all of their width in those that are kept."""
MOST_BYTES: Final = 50_000
MOST_BYTES_OF_ALL: Final = 500_000
LEAST_COLOURS: Final = 50
QUALITY: Final = 0.7


def _window(width: int, height: int, colors: str = "light") -> dict[str, Any]:
    return {"color_scheme": colors, "viewport": {"width": width, "height": height}}


SAY_NEUTRALLY: Final = """
(() => {
  const said = Object.entries(%s);
  const change = (node) => {
    for (const [from, to] of said) if (node.data.includes(from)) node.data = node.data.replaceAll(from, to);
  };
  const look = (root) => {
    if (root.nodeType === Node.TEXT_NODE) return change(root);
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) if (texts.currentNode.parentNode.localName !== "script") change(texts.currentNode);
  };
  new MutationObserver((all) => {
    for (const each of all) each.type === "characterData" ? change(each.target) : each.addedNodes.forEach(look);
  }).observe(document, { subtree: true, childList: true, characterData: true });
})();
"""
"""Before it is drawn, each text that the machine has chosen makes room for one that is everywhere the same."""
CHARTED: Final = """
async ([name, least, patience]) => {
  for (const end = performance.now() + patience; performance.now() < end; await new Promise((done) => setTimeout(done, 500))) {
    const { times, series } = await (await fetch(`/api/history?series=${name}&points=900`)).json();
    const known = times.filter((_, i) => typeof series[name]?.[i] === "number");
    if (known.length > 2 && known.at(-1) - known[0] >= least) return true;
  }
  return false;
}
"""
AS_WEBP: Final = """
async ([png, quality]) => {
  const draw = async (source) => {
    const image = Object.assign(new Image(), { src: source });
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return [canvas, context.getImageData(0, 0, image.width, image.height)];
  };
  const [canvas] = await draw(`data:image/png;base64,${png}`);
  const webp = canvas.toDataURL("image/webp", quality);
  const [, { width, height, data }] = await draw(webp);
  return { webp, width, height, colours: new Set(new Uint32Array(data.buffer)).size };
}
"""


@attrs.frozen(kw_only=True)
class View:
    """What is photographed of a route, and when: once its texts are there, and what `ready` waits for."""

    pattern: str
    query: str = ""
    texts: tuple[str, ...]
    """Some of what has to be there."""
    how: dict[str, Any] = attrs.field(factory=lambda: _window(1100, 720))
    has_charts: bool = False
    ready: Callable[[Page], None] = lambda page: None

    @property
    def path(self) -> str:
        return self.pattern.format(topic=TOPIC, group=BEHIND) + self.query


def _walked(page: Page) -> None:
    expect(page.locator(".walk-way .read").first).to_be_attached()
    expect(page.locator(".found dd").first).to_be_visible()


def _refused(page: Page) -> None:
    expect(page.locator("svg.requests .fault").first).to_be_attached()
    row = page.get_by_role("region", name="Rules").get_by_role("row").filter(has_text="NOT_LEADER_OR_FOLLOWER")
    expect(row.get_by_role("cell").nth(3)).to_have_text("2")


def _measured(page: Page) -> None:
    expect(page.get_by_role("row").filter(has_text="tower").first.get_by_role("cell").nth(5)).to_contain_text("B/s")


def _joined(page: Page) -> None:
    expect(page.locator(".chart .line")).to_have_attribute("d", re.compile("M.*L"))


THE_DAY: Final = f"?at={DAY_START}&to={DAY_END}"
VIEWS: Final = {
    "topics": View(pattern="/topics", texts=("departures", "alarms"), has_charts=True),
    "topic": View(pattern="/topics/{topic}", texts=("Configuration", "records/s"), has_charts=True),
    "records": View(pattern="/topics/{topic}/records", query=THE_DAY, texts=("carrier",), how=_window(1100, 600)),
    "records-narrow": View(pattern="/topics/{topic}/records", query=THE_DAY, texts=("carrier",), how=_window(390, 844)),
    "walk": View(pattern="/topics/{topic}/walk", query=f"?partition=0&at={DAY_START}", texts=("carrier",), ready=_walked),
    "groups": View(pattern="/groups", texts=(BEHIND, "display"), has_charts=True),
    "group": View(pattern="/groups/{group}", texts=("records behind", "billing-2"), has_charts=True),
    "transactions": View(pattern="/transactions", texts=("till-2", "open")),
    "connections": View(pattern="/connections", texts=("tower", "triolog-forward"), how=_window(1100, 600), ready=_measured),
    "wear": View(pattern="/wear", texts=("The server's process", "fsync"), has_charts=True),
    "test": View(pattern="/test", texts=("error=NOT_LEADER_OR_FOLLOWER",), how=_window(1100, 960), ready=_refused),
    "forward": View(pattern="/forward", texts=(LINK, "running"), ready=_joined),
    "overview": View(pattern="/", texts=("Ready", "departures", BEHIND), has_charts=True),
    "overview-dark": View(pattern="/", texts=("Ready",), how=_window(1100, 720, "dark"), has_charts=True),
}
"""By the names of their pictures, in the order in which they are made: those with charts of what is sampled come last."""


@attrs.frozen
class Taken:
    width: int
    height: int
    colours: int
    content: bytes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pictured]:
    with pictured(tmp_path_factory.mktemp("pictured")) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KEPT if WRITES else tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def taken(chromium: Browser, server: Pictured, folder: Path) -> dict[str, Taken]:
    """All of them, in their order. What the page of links charts begins when it is opened, so it is open all the time."""
    pictures: dict[str, Taken] = {}
    folder.mkdir(exist_ok=True)
    with _opened(chromium, server) as links, _opened(chromium, server) as seen, opened(chromium, server.console) as studio:
        links.show(VIEWS["forward"].path, **VIEWS["forward"].how)
        for name, view in VIEWS.items():
            with ExitStack() as stack:
                if name == "test":
                    stack.enter_context(server.still())
                    server.refuse_alarms()
                found = links if name == "forward" else seen
                page = links.page if name == "forward" else seen.show(view.path, **view.how)
                png = _photographed(page, view)
                found.check_quiet()
            pictures[name] = _developed(studio.page, png)
            (folder / f"{name}.webp").write_bytes(pictures[name].content)
    return pictures


def _opened(browser: Browser, server: Pictured) -> AbstractContextManager[Opened]:
    scripts = (SAY_NEUTRALLY % json.dumps(server.neutral),)
    return opened(browser, server.console, scripts=scripts, timezone_id=NEW_YORK)


def _photographed(page: Page, view: View) -> bytes:
    """What the window shows, as PNG, once all of it is there."""
    if view.has_charts:
        assert page.evaluate(CHARTED, [f"group:{BEHIND}", CHARTED_MS, PATIENCE_MS + CHARTED_MS])
        page.reload()
    for text in view.texts:
        expect(page.locator("main").get_by_text(text).first).to_be_visible()
    expect(page.locator("#state")).to_have_class("ready")
    view.ready(page)
    return page.screenshot()


def _developed(page: Page, png: bytes) -> Taken:
    """As WebP, by the browser itself, and what it sees when it looks at that."""
    told = page.evaluate(AS_WEBP, [base64.b64encode(png).decode(), QUALITY])
    kind, _, content = told.pop("webp").partition(",")
    assert kind == "data:image/webp;base64"
    return Taken(**told, content=base64.b64decode(content))


@pytest.mark.long  # the views themselves are in `test_views.py`
@pytest.mark.parametrize("name", VIEWS)
def test_a_picture_shows_its_view_and_is_small(taken: dict[str, Taken], name: str) -> None:
    picture = taken[name]
    assert {"width": picture.width, "height": picture.height} == VIEWS[name].how["viewport"]
    assert picture.colours >= LEAST_COLOURS
    assert len(picture.content) <= MOST_BYTES


@pytest.mark.long
def test_all_pictures_together_are_small(taken: dict[str, Taken]) -> None:
    assert sum(len(picture.content) for picture in taken.values()) <= MOST_BYTES_OF_ALL


def test_each_view_has_a_picture() -> None:
    assert {view.pattern for view in VIEWS.values()} == {route.pattern for route in ROUTES if route.has_page}


def test_the_documentation_has_these_pictures_and_no_others() -> None:
    pictures = {path.name: path.stat().st_size for path in KEPT.iterdir()}
    assert set(pictures) == {f"{name}.webp" for name in VIEWS}, "run: make console-pictures"
    assert max(pictures.values()) <= MOST_BYTES
    assert sum(pictures.values()) <= MOST_BYTES_OF_ALL
