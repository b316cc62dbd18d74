from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
import triolog
from playwright.sync_api import Browser, expect
from triolog.protocol.native.messages import PlainRecord
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.console.watching.watcher import MAX_STREAMS

from tests.browser.browsing import opened
from tests.browser.conftest import console_of, produce
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder

TOO_MANY = "8 searches and tails are running"
PASSWORD = "correct horse"


@pytest.fixture
def address() -> Iterator[str]:
    """Of a console of a server with a topic."""
    with triolog.blocking.open(topics=["flights"], native="127.0.0.1:0") as broker:
        broker.append("flights", [b"UA1545", b"AA1141", b"UA1714"])
        with console_of("{}:{}".format(*broker.native)) as console:
            yield console


def tail(address: str) -> socket.socket:
    """A live tail that somebody else has open."""
    host, port = address.split(":")
    stream = socket.create_connection((host, int(port)), 60)
    stream.sendall(f"GET /api/topics/flights/tail HTTP/1.1\r\nhost: {address}\r\n\r\n".encode())
    data = b""
    while b"event: records" not in data:
        piece = stream.recv(65536)
        assert piece, data
        data += piece
    return stream


def test_a_search_begins_at_the_newest_record_where_that_is_wanted(chromium: Browser, axe: Path, address: str) -> None:
    with opened(chromium, address, axe) as found:
        page = found.go("/topics/flights/records?q=UA")
        values = page.locator("tbody td:nth-child(5)")
        expect(values).to_have_text(["UA1545", "UA1714"])
        page.get_by_label("newest first").check()
        page.get_by_role("button", name="Search").click()
        expect(values).to_have_text(["UA1714", "UA1545"])
        expect(page.locator("p.said")).to_contain_text("Searched to the end: 2 matches in 3 records")
        assert page.url.endswith("?q=UA&order=newest")
        page.reload()
        expect(page.get_by_label("newest first")).to_be_checked()
        expect(values).to_have_text(["UA1714", "UA1545"])
        found.check_accessible()
        found.check_quiet()


def test_a_tail_and_a_search_that_are_too_many_say_so_and_the_tail_goes_on(chromium: Browser, axe: Path, address: str) -> None:
    with ExitStack() as stack, opened(chromium, address, axe) as found:
        others = [stack.enter_context(tail(address)) for _ in range(MAX_STREAMS)]
        page = found.go("/topics/flights/records?q=UA")
        said = page.locator("p.said")
        expect(said).to_have_text(TOO_MANY)
        found.check_accessible()
        page.get_by_role("button", name="Live").click()
        expect(said).to_have_text(f"The tail is interrupted: {TOO_MANY}. It is tried again.")
        found.check_accessible()
        others.pop().close()
        expect(said).to_contain_text("Live.")
        assert all("429" in each for each in found.complaints), found.complaints


def test_a_topic_that_goes_ends_its_tail_with_the_reason(chromium: Browser) -> None:
    with triolog.blocking.open(topics=["flights"], native="127.0.0.1:0") as broker:
        with console_of("{}:{}".format(*broker.native)) as console, opened(chromium, console) as found:
            page = found.go("/topics/flights/records?live=1")
            expect(page.locator("p.said")).to_contain_text("Live.")
            broker.delete_topic("flights")
            expect(page.locator("p.said")).to_contain_text("The tail is interrupted: there is no topic 'flights'")
            assert all("404" in each for each in found.complaints), found.complaints


def test_a_console_that_was_started_again_has_the_user_log_in_again(chromium: Browser, axe: Path) -> None:
    security = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with triolog.blocking.open(
        users={"alice": PASSWORD}, topics=["flights"], security=security, native="127.0.0.1:0"
    ) as broker:
        server = "{}:{}".format(*broker.native)
        with ExitStack() as stack:
            with console_of(server) as console:
                found = stack.enter_context(opened(chromium, console, axe))
                page = found.go("/topics")

                def log_in() -> None:
                    page.get_by_label("User").fill("alice")
                    page.get_by_label("Password").fill(PASSWORD)
                    page.get_by_role("button", name="Log in").click()
                    expect(page.locator("tbody a.row")).to_have_text(["flights"])
                    expect(page.locator("#state")).to_have_text("ready")

                log_in()
            expect(page.locator("#banner")).to_contain_text("The console's own process does not respond.")
            stack.enter_context(console_of(server, "--listen", console))
            expect(page.locator("h1")).to_have_text("Log in")
            expect(page.locator("#banner")).to_be_empty()
            page.get_by_label("User").fill("ali")
            for _ in range(2):  # it is tried again, and the form stays
                page.wait_for_event("response", lambda response: response.url.endswith("/api/events"))
            expect(page.get_by_label("User")).to_have_value("ali")
            found.check_accessible()
            log_in()
            expect(page.locator("#banner")).to_be_empty()


def test_a_page_keeps_what_it_has_while_the_server_is_away_and_goes_on(chromium: Browser, tmp_path: Path) -> None:
    with ServerFolder(tmp_path) as folder:
        first = folder.start()
        produce(first.address, "flights", b"UA1545")
        where = "{}:{}".format(*first.address)
        with console_of(where) as console, opened(chromium, console) as found:
            page = found.go("/topics/flights")
            expect(page.get_by_text("1 partition · 1 record")).to_be_visible()
            first.kill()
            expect(page.locator("#banner")).to_contain_text(f"No response from {where} since")
            expect(page.locator("#state")).to_have_text("no answer")
            expect(page.get_by_text("1 partition · 1 record")).to_be_visible()
            second = folder.start("--native", where)
            expect(page.locator("#state")).to_have_text("ready")
            expect(page.locator("#banner")).to_be_empty()
            produce(second.address, "flights", b"UA1714")
            expect(page.get_by_text("1 partition · 2 records")).to_be_visible()
            assert all("503" in each for each in found.complaints), found.complaints


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


TOPIC = "flights"
NOON_MS = 1_372_939_200_000
"""2013-07-04T12:00Z, 14:00 in the browser."""
HOUR_MS = 3_600_000
PLACE = TopicPartition(TOPIC, 0)


@attrs.frozen
class Consoled:
    address: str
    admin: BlockingAdmin = attrs.field(repr=False)


@pytest.fixture
def consoled() -> Iterator[Consoled]:
    """The console of a server whose groups `alarms` and `sharers` go on at offset 4 of ten records, one an hour up to noon."""
    with triolog.blocking.open(topics={TOPIC: 1}, config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        broker.append(TOPIC, [PlainRecord(NOON_MS - hours * HOUR_MS, None, b"UA1545") for hours in reversed(range(10))])
        with BlockingClient(broker.native) as client:
            admin = BlockingAdmin(client)
            admin.commit_group_offsets("alarms", {PLACE: 4})
            admin.alter_share_group_offsets("sharers", {PLACE: 4})
            with console_of("{}:{}".format(*broker.native), "--allow-changes") as address:
                yield Consoled(address, admin)


@pytest.mark.parametrize("group", ["alarms", "sharers"])
def test_a_group_is_reset_to_a_time(chromium: Browser, axe: Path, consoled: Consoled, group: str) -> None:
    with opened(chromium, consoled.address, axe) as found:
        page = found.go(f"/groups/{group}")
        rows = page.get_by_label("Partitions", exact=True).locator("tbody tr")
        expect(rows).to_contain_text([f"{TOPIC}0410"])
        page.get_by_role("button", name="Reset").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Time", exact=True).fill("2013-07-04T06:30")
        dialog.get_by_label("Time", exact=True).blur()
        expect(dialog.get_by_role("status")).to_have_text("2 records will be read again, 0 skipped.")
        expect(dialog.locator("tbody tr td")).to_have_text([TOPIC, "0", "4", "2", "2", "0"])
        found.check_accessible()
        dialog.get_by_label("Goes on").select_option("latest")
        expect(dialog.get_by_role("status")).to_have_text("0 records will be read again, 6 skipped.")
        dialog.get_by_label("Goes on").select_option("at")
        expect(dialog.get_by_role("status")).to_have_text("2 records will be read again, 0 skipped.")
        dialog.get_by_role("button", name="Reset").click()
        expect(rows).to_contain_text([f"{TOPIC}0210"])
        found.check_quiet()
