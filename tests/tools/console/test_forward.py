from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.tools.forward.process.control import serve_control
from triolog.tools.forward.process.place import CONTROL, LOCK, LinkPlace, ask_in_trio

from tests.support.browser_wire import Browser
from tests.support.forwarding import LINK, TOPIC, Forwarding, Running, forwarding

from .conftest import Shown, showing, shown_broker


@asynccontextmanager
async def forwarded(folder: Path, **console: Any) -> AsyncIterator[tuple[Forwarding, Browser]]:
    """A link that runs and can be asked, and a console of its source."""
    with forwarding() as pair:
        pair.source.create_topic(TOPIC)
        link, place = pair.link(), LinkPlace.take(folder, LINK)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(serve_control, link, place)
                with Running(link):
                    async with showing(tuple(pair.source.native), forward_state_dir=str(folder), **console) as browser:
                        yield pair, browser
                nursery.cancel_scope.cancel()
        finally:
            place.release()


async def link_with(browser: Browser, **wanted: Any) -> dict[str, Any]:
    """What is told of the link when it is so."""
    with trio.fail_after(60):
        while True:
            [told] = (await browser.get("/api/forward")).json["links"]
            if all(told.get(name) == value for name, value in wanted.items()):
                return dict(told)


async def test_a_link_is_told_with_its_backlog_paused_and_resumed(tmp_path: Path) -> None:
    async with forwarded(tmp_path, allow_changes=True) as (pair, browser):
        await trio.to_thread.run_sync(pair.append, [b"a", b"b"])
        told = await link_with(browser, records=2, state="running")
        assert (told["link"], told["backlog_records"], told["lost_records"], told["is_paused"]) == (LINK, 0, 0, False)
        assert [(each["topic"], each["offset"]) for each in told["partitions"]] == [(TOPIC, 2)]
        page = await browser.open("/forward")
        assert page.first["console"]["has_forward"] is True
        assert page.first["view"]["state_dir"] == str(tmp_path)

        assert (await browser.post(f"/api/forward/{LINK}/pause")).status == 200
        await link_with(browser, state="paused", is_paused=True)
        await trio.to_thread.run_sync(pair.append, [b"c"])
        assert (await browser.post(f"/api/forward/{LINK}/resume")).status == 200
        await link_with(browser, records=3, state="running", is_paused=False)
        assert await trio.to_thread.run_sync(pair.values) == [b"a", b"b", b"c"]


async def test_what_is_no_link_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    async with shown_broker(console={"forward_state_dir": str(tmp_path / "links"), "allow_changes": True}) as shown:
        assert (await shown.browser.post("/api/forward/link/pause")).json["error"]["name"] == "CSRF_TOKEN_MISSING"
        await shown.browser.open("/forward")
        assert (await shown.browser.get("/api/forward")).json["links"] == []
        for name in ("link", "..%2Foutside", "%2E%2E"):
            answer = await shown.browser.post(f"/api/forward/{name}/pause")
            assert (answer.status, answer.json["error"]["name"]) == (404, "NO_SUCH_LINK")


async def test_a_link_without_a_process_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / LINK).mkdir()
    (tmp_path / LINK / LOCK).touch()
    (tmp_path / LINK / "paused").touch()
    async with shown_broker(console={"forward_state_dir": str(tmp_path), "allow_changes": True}) as shown:
        [told] = (await shown.browser.get("/api/forward")).json["links"]
        assert (told["link"], told["state"], told["is_paused"]) == (LINK, "not running", True)
        await shown.browser.open("/forward")
        refused = await shown.browser.post(f"/api/forward/{LINK}/resume")
        assert (refused.status, refused.json["error"]["name"]) == (409, "LINK_NOT_RUNNING")


async def test_without_a_state_directory_there_is_no_link(shown: Shown) -> None:
    page = await shown.browser.open("/forward")
    assert page.first["console"]["has_forward"] is False
    assert (page.first["view"]["state_dir"], page.first["view"]["links"]) == (None, [])


@pytest.mark.parametrize("answer", [b"", b"no JSON\n"])
async def test_who_ends_without_an_answer_is_said_to(tmp_path: Path, answer: bytes) -> None:
    path = str(tmp_path / CONTROL)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()

        async def serve() -> None:
            async with trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup())) as listener:
                peer = await listener.accept()
            async with peer:
                await peer.receive_some()
                await peer.send_all(answer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with pytest.raises((OSError, ValueError)):
                await ask_in_trio(path, {"command": "status"}, 60)
