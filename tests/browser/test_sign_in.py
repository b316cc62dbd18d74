from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import attrs
import pytest
from playwright.sync_api import Browser, Page, expect
from triolog.protocol.native.messages import NewTopic
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.login import LoginConfig

from tests.support.server_process import ServerFolder

from .browsing import Opened, opened
from .conftest import console_of

TOPIC: Final = "flights"
USERS: Final = {"alice": "secret"}
SETTINGS: Final = """
native_security = "sasl_plaintext"
sasl_users_file = "{users}"
connection_failed_authentication_delay_ms = 1
acl_enable = true
super_users = "User:alice"
"""
TAMPER: Final = """
async () => {
  const script = document.createElement("script");
  script.textContent = "window.ran_ = true";
  const image = document.createElement("img");
  image.src = "OTHER/image.png";
  document.body.append(script, image);
  const baits = "<b onclick='ran_ = true' id='bait_'>x</b><a href='javascript:ran_=true' id='link_'>x</a>";
  document.body.insertAdjacentHTML("beforeend", baits);
  document.getElementById("bait_").click();
  document.getElementById("link_").click();
  const sent = await fetch("OTHER/told").then(() => true, () => false);
  return { ran: window.ran_ === true, sent };
}
"""
"""What a script would do that has come into the page after all."""
FORGE: Final = """
async (site) => {
  const read = await fetch(`${site}/api/topics`, { credentials: "include" }).then(() => true, () => false);
  const body = JSON.stringify({ partition: 0, value: "forged", value_as: "text" });
  const change = { method: "POST", credentials: "include", body };
  const records = `${site}/api/topics/flights/records`;
  await fetch(records, { ...change, mode: "no-cors" }).catch(() => null);
  await fetch(records, { ...change, headers: { "content-type": "application/json" } }).catch(() => null);
  await fetch(`${site}/api/logout`, { ...change, mode: "no-cors" }).catch(() => null);
  return read;
}
"""


class Stranger(BaseHTTPRequestHandler):
    """Another site: a page with the console in a frame, and a link to it."""

    site: str
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        page = f'<title>other</title><a href="{self.site}/topics/{TOPIC}">look</a><iframe src="{self.site}/"></iframe>'.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@attrs.frozen
class Guarded:
    console: str
    other: str
    """An address of somebody else."""
    asked: list[str]
    """Of him."""


@contextmanager
def another_site(console: str) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Stranger,), {"site": f"http://{console}", "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A console that may change things, of a server with users: alice may do everything."""
    folder = tmp_path_factory.mktemp("guarded")
    users, settings = folder / "users.toml", folder / "server.toml"
    users.write_text("".join(f'[{name}]\npassword = "{password}"\n' for name, password in USERS.items()))
    settings.write_text(SETTINGS.format(users=users))
    alice = ClientConfig(login=LoginConfig(user="alice", password=USERS["alice"]))
    with ServerFolder(folder, arguments=("--config", str(settings))) as servers:
        server = servers.start()
        with BlockingClient(server.address, alice) as client:
            BlockingAdmin(client).create_topics([NewTopic(TOPIC, 1)])
        with console_of("{}:{}".format(*server.address), "--allow-changes") as console, another_site(console) as (other, asked):
            yield Guarded(console, other, asked)


def has_no_records(page: Page) -> bool:
    """Of a page that alice has."""
    return bool(page.evaluate(f"fetch('/api/topics/{TOPIC}/records').then((told) => told.json())")["records"] == [])


def log_in(page: Page, user: str, password: str) -> None:
    form = page.get_by_role("form", name="Log in")
    form.get_by_label("User").fill(user)
    form.get_by_label("Password").fill(password)
    form.get_by_role("button", name="Log in").click()


def as_alice(found: Opened) -> Page:
    page = found.go(f"/topics/{TOPIC}")
    log_in(page, "alice", USERS["alice"])
    expect(page.locator("h1")).to_have_text(TOPIC)
    return page


def test_a_user_logs_in_sees_what_was_asked_for_and_logs_out(chromium: Browser, axe: Path, guarded: Guarded) -> None:
    with opened(chromium, guarded.console, axe) as found:
        page = found.go(f"/topics/{TOPIC}")
        found.check_accessible()
        expect(page.locator("input:focus")).to_have_attribute("name", "user")
        log_in(page, "alice", "wrong")
        expect(page.get_by_role("alert")).to_contain_text("invalid credentials")
        found.check_accessible()
        log_in(page, "alice", USERS["alice"])
        expect(page.locator("h1")).to_have_text(TOPIC)
        assert page.url.endswith(f"/topics/{TOPIC}")
        page.reload()
        expect(page.locator("h1")).to_have_text(TOPIC)
        page.get_by_role("button", name="log out").click()
        expect(page.get_by_role("form", name="Log in")).to_be_visible()
        page.reload()
        expect(page.get_by_role("form", name="Log in")).to_be_visible()
        assert all("401" in each for each in found.complaints), found.complaints


def test_pages_of_another_site_neither_read_nor_change_nor_frame_it(chromium: Browser, guarded: Guarded) -> None:
    with opened(chromium, guarded.console) as found:
        page = as_alice(found)
        page.goto(f"{guarded.other}/")
        assert page.evaluate(FORGE, f"http://{guarded.console}") is False
        [frame] = page.frames[1:]
        assert "/static/" not in frame.content()
        page.get_by_role("link", name="look").click()
        expect(page.locator("h1")).to_have_text(TOPIC)  # a link leads here, and alice is still logged in
        assert has_no_records(page)


def test_nothing_runs_that_is_no_file_of_the_console_and_nothing_is_told_elsewhere(chromium: Browser, guarded: Guarded) -> None:
    with opened(chromium, guarded.console) as found:
        page = as_alice(found)
        guarded.asked.clear()
        assert page.evaluate(TAMPER.replace("OTHER", guarded.other)) == {"ran": False, "sent": False}
        assert guarded.asked == []
        broken = page.evaluate("violations_.map((each) => each.split(' ')[0])")
        assert {"script-src-elem", "script-src-attr", "img-src", "connect-src"} <= set(broken)
