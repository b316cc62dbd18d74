from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.support.server_process import ServerFolder

from .browsing import opened
from .conftest import console_of, produce


def test_a_page_keeps_what_it_has_while_the_server_is_away_and_goes_on(chromium: Browser, tmp_path: Path) -> None:
    with ServerFolder(tmp_path) as folder:
        first = folder.start()
        produce(first.address, "flights", b"UA1545")
        where = "{}:{}".format(*first.address)
        with console_of(where) as console, opened(chromium, console) as found:
            page = found.go("/topics/flights")
            expect(page.get_by_text("1 partition · 1 record")).to_be_visible()
            first.kill()
            expect(page.locator("#banner")).to_contain_text(f"No answer from {where} since")
            expect(page.locator("#state")).to_have_text("no answer")
            expect(page.get_by_text("1 partition · 1 record")).to_be_visible()
            second = folder.start("--native", where)
            expect(page.locator("#state")).to_have_text("ready")
            expect(page.locator("#banner")).to_be_empty()
            produce(second.address, "flights", b"UA1714")
            expect(page.get_by_text("1 partition · 2 records")).to_be_visible()
            assert all("503" in each for each in found.complaints), found.complaints
