from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.tools.console.around import links
from triolog.tools.console.around.links import MAX_SHOWN, KnownLinks
from triolog.tools.forward.process.control import serve_control
from triolog.tools.forward.process.place import CONTROL, LOCK, LinkPlace, ask_in_trio

from tests.support.browser_wire import Browser
from tests.support.forwarding import LINK, TOPIC, Forwarding, Running, forwarding
from tests.tools.console.conftest import Shown, showing, shown_broker
from tests.tools.console.test_sessions import WITH_RIGHTS, logged_in

Told = dict[str, Any]


def place_of(folder: Path, name: str) -> Path:
    """A link that has or had a process."""
    place = folder / name
    place.mkdir()
    (place / LOCK).touch()
    return place


@attrs.define
class Answering:
    """A link whose process says what it is told to say. Counts how often it was asked."""

    answer: Any
    asked: int = 0

    async def serve(self, place: Path, *, task_status: trio.TaskStatus[None]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(place / CONTROL))
            listening.listen()
            async with trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup())) as listener:
                task_status.started()
                while True:
                    async with await listener.accept() as peer:
                        await peer.receive_some()
                        self.asked += 1
                        await peer.send_all(json.dumps(self.answer).encode() + b"\n")


def status(name: str, **changes: Any) -> Told:
    """What a link that runs says of itself, as far as it matters here."""
    counts = {"backlog_records": 5, "backlog_bytes": 500, "records_per_second": 2.0, "bytes_per_second": 200.0, "eta_s": 2.5}
    return {"link": name, "state": "running", "troubles": {}, **counts, "lost_records": 1, "partitions": [], **changes}


@asynccontextmanager
async def hanging(place: Path) -> AsyncIterator[None]:
    """A link whose process takes connections and answers none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place / CONTROL))
        listening.listen()
        yield


async def overview_with(browser: Browser, is_wanted: Callable[[list[Told]], bool]) -> Told:
    """The first overview whose links are so."""
    with trio.fail_after(60):
        while True:
            told: Told = (await browser.get("/api/")).json
            if "links" in told and is_wanted(told["links"]):
                return told


def states(rows: list[Told]) -> dict[str, str]:
    return {each["link"]: each["state"] for each in rows}


async def test_the_overview_tells_of_each_link_and_waits_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "OVERVIEW_ASK_S", 3600.0)
    place_of(tmp_path, "gone")
    (tmp_path / "no-link").mkdir()
    stopped = Answering(status("stopped", state="stopped", backlog_bytes=9000))
    troubled = Answering(status("troubled", troubles={"t": "no such topic"}))
    others = [Answering(status("far", backlog_bytes=700)), Answering(status("near", eta_s=None)), stopped, troubled]
    async with (
        trio.open_nursery() as nursery,
        hanging(place_of(tmp_path, "hanging")),
        shown_broker(console={"forward_state_dir": str(tmp_path)}) as shown,
    ):
        for each in others:
            await nursery.start(each.serve, place_of(tmp_path, each.answer["link"]))
        wanted = {"stopped": "stopped", "troubled": "running", "gone": "not running", "far": "running", "near": "running"}
        wanted["hanging"] = "looking"
        told = await overview_with(shown.browser, lambda rows: states(rows) == wanted)
        assert list(states(told["links"])) == list(wanted)
        assert [each["is_bad"] for each in told["links"]] == [True, True, True, False, False, False]
        assert told["link_count"] == 6
        far = status("far", backlog_bytes=700, stopped_topics=0, is_bad=False)
        assert told["links"][3] == {name: value for name, value in far.items() if name not in ("troubles", "partitions")}
        assert [each["stopped_topics"] for each in told["links"]] == [0, 1, 0, 0, 0, 0]
        assert (await shown.browser.open("/")).first["view"]["links"] == told["links"]
        nursery.cancel_scope.cancel()


async def test_samples_tell_how_links_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "EACH_S", 0.01)
    link = Answering(status("link"))
    async with trio.open_nursery() as nursery, shown_broker(console={"forward_state_dir": str(tmp_path)}) as shown:
        await nursery.start(link.serve, place_of(tmp_path, "link"))
        seen: list[str] = []
        with trio.fail_after(60):
            async with shown.browser.events("/api/events") as events:
                async for event in events:
                    seen += [row["state"] for row in event.value.get("links", ()) if row["state"] not in seen]
                    link.answer = status("link", state="paused" if "running" in seen else "running")
                    if "paused" in seen:
                        break
        assert [each for each in seen if each != "looking"] == ["running", "paused"]
        nursery.cancel_scope.cancel()


async def test_a_link_is_asked_once_in_a_while_however_many_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "EACH_S", 3600.0)
    link = Answering(status("link"))
    async with trio.open_nursery() as nursery, shown_broker(console={"forward_state_dir": str(tmp_path)}) as shown:
        await nursery.start(link.serve, place_of(tmp_path, "link"))
        assert link.asked == 0
        await overview_with(shown.browser, lambda rows: states(rows) == {"link": "running"})
        for browser in (shown.browser, shown.other()):
            assert states((await browser.get("/api/")).json["links"]) == {"link": "running"}
        assert link.asked == 1
        nursery.cancel_scope.cancel()


async def test_only_some_of_many_links_are_shown(tmp_path: Path) -> None:
    for number in range(MAX_SHOWN + 2):
        place_of(tmp_path, f"link-{number:02}")
    async with shown_broker(console={"forward_state_dir": str(tmp_path)}) as shown:
        told = await overview_with(shown.browser, lambda rows: set(states(rows).values()) == {"not running"})
        assert (len(told["links"]), told["link_count"]) == (MAX_SHOWN, MAX_SHOWN + 2)


async def test_a_link_that_never_answers_is_not_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "OVERVIEW_ASK_S", 0.01)
    async with hanging(place_of(tmp_path, "hanging")), shown_broker(console={"forward_state_dir": str(tmp_path)}) as shown:
        [told] = (await overview_with(shown.browser, lambda rows: states(rows) == {"hanging": "not running"}))["links"]
        assert told["is_bad"] is True


async def test_without_links_there_are_none(shown: Shown, tmp_path: Path) -> None:
    told = await overview_with(shown.browser, lambda rows: True)
    assert (told["links"], told["link_count"]) == ([], 0)
    (tmp_path / "file").touch()
    async with shown_broker(console={"forward_state_dir": str(tmp_path / "file")}) as other:
        assert (await overview_with(other.browser, lambda rows: True))["links"] == []


async def test_who_may_not_see_statistics_sees_no_links(tmp_path: Path) -> None:
    place_of(tmp_path, "link")
    async with shown_broker(console={"forward_state_dir": str(tmp_path)}, **WITH_RIGHTS) as shown:
        alice, bob = await logged_in(shown)
        await overview_with(alice, lambda rows: states(rows) == {"link": "not running"})
        assert (await bob.get("/api/")).status == 403
        with trio.fail_after(60):
            async with bob.events("/api/events") as events:
                async for event in events:
                    assert "links" not in event.value
                    if event.value["status"]["is_connected"]:
                        break


async def test_an_answer_that_is_not_understood_is_none(tmp_path: Path) -> None:
    answers = ([], 1, {"state": "running"}, status("x", partitions=3), {"error": "no"}, status("x", partitions=[{"topic": 1}]))
    for number, answer in enumerate(answers):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        assert (await row_of(folder, answer))["state"] == "not running", answer


async def test_figures_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    told = await row_of(tmp_path, status("another", state=[], eta_s="soon", backlog_bytes=float("inf"), troubles=3))
    assert (told["link"], told["eta_s"], told["backlog_bytes"], told["lost_records"]) == ("link", None, None, 1)
    assert told["is_bad"] is True


async def row_of(folder: Path, answer: Any) -> Told:
    """How a link that answers so is told."""
    known = KnownLinks(str(folder))
    async with trio.open_nursery() as nursery:
        await nursery.start(Answering(answer).serve, place_of(folder, "link"))
        await nursery.start(known.run)
        with trio.fail_after(60):
            while True:
                await known.fresh()
                await trio.lowlevel.checkpoint()
                told = known.told()["links"]
                if told and told[0]["state"] != "looking":
                    break
        nursery.cancel_scope.cancel()
    row: Told = told[0]
    return row


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


@pytest.mark.merge
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
