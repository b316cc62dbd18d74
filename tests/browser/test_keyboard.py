from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder

from .browsing import opened
from .conftest import console_of, produce


@pytest.fixture(scope="module")
def three_topics(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Iterator[str]:
    """Of a console with three topics."""
    with ServerFolder(tmp_path_factory.mktemp("keyboard"), command=server_forker) as folder:
        server = folder.start()
        for topic in ("alarms", "flights-late"):
            produce(server.address, topic)
        produce(server.address, "flights", b"UA1545", b"UA1714")
        with console_of("{}:{}".format(*server.address)) as console:
            yield console


def test_from_the_overview_to_a_topic_by_keys_only(chromium: Browser, three_topics: str) -> None:
    with opened(chromium, three_topics) as found:
        page = found.go("/")
        expect(page.locator("h1")).to_have_text("Ready")
        page.keyboard.press("t")  # no way to anywhere without a g before it, also right after the page was opened
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to content")
        assert page.url == f"http://{three_topics}/"
        page.keyboard.press("g")
        page.keyboard.press("t")
        expect(page.locator("h1:focus")).to_have_text("Topics")
        page.keyboard.press("/")
        page.keyboard.type("flights")
        expect(page.locator("tbody a.row")).to_have_text(["flights", "flights-late"])
        assert page.url.endswith("/topics?q=flights")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("j")
        page.keyboard.press("k")
        expect(page.locator("a.row:focus")).to_have_text("flights")
        page.keyboard.press("Enter")
        expect(page.locator("h1:focus")).to_have_text("flights")
        expect(page.get_by_text("2 records").first).to_be_visible()
        page.go_back()
        expect(page.locator("h1")).to_have_text("Topics")
        expect(page.locator("input[type=search]")).to_have_value("flights")
        found.check_quiet()


def test_keys_are_told_and_a_dialog_gives_focus_back(chromium: Browser, three_topics: str, axe: Path) -> None:
    with opened(chromium, three_topics, axe) as found:
        page = found.go("/topics")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        found.check_accessible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("d")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        found.check_quiet()
