from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from triolog.server.embedded import BlockingBroker
from triolog.tools.console.watching.watcher import MAX_STREAMS

from .browsing import opened
from .conftest import console_of

TOO_MANY = "8 searches and tails are running; close a tab of one"
PASSWORD = "correct horse"


@pytest.fixture
def address() -> Iterator[str]:
    """Of a console of a server with a topic."""
    with BlockingBroker(topics=["flights"]) as broker:
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
    with BlockingBroker(topics=["flights"]) as broker:
        with console_of("{}:{}".format(*broker.native)) as console, opened(chromium, console) as found:
            page = found.go("/topics/flights/records?live=1")
            expect(page.locator("p.said")).to_contain_text("Live.")
            broker.delete_topic("flights")
            expect(page.locator("p.said")).to_contain_text("The tail is interrupted: there is no topic 'flights'")
            assert all("404" in each for each in found.complaints), found.complaints


def test_a_console_that_was_started_again_has_the_user_log_in_again(chromium: Browser, axe: Path) -> None:
    security = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with BlockingBroker(users={"alice": PASSWORD}, topics=["flights"], security=security) as broker:
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
            expect(page.locator("#banner")).to_contain_text("The console's own process does not answer.")
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
