from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.server.config.values import Address

from tests.support.browser_wire import Browser
from tests.support.control_port import Control, started
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder

from .conftest import Shown, showing

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Iterator[Control]:
    """A server with two nodes and a control port that wants a token."""
    folder = tmp_path_factory.mktemp("control")
    (folder / "token").write_text(TOKEN)
    with ServerFolder(folder, command=server_forker) as of_server:
        arguments = ("--control", "127.0.0.1:0", "--control-token-file", str(folder / "token"), "--nodes", "2")
        server, control = started(of_server, *arguments)
        yield control
        assert server.stop() == 0, server.stderr()


@asynccontextmanager
async def worked(server: Control, **console: Any) -> AsyncIterator[Browser]:
    port = Address.parse(server.ready["control"])
    chosen = {"allow_changes": True, "control_token": TOKEN, "control": port, **console}
    async with showing(tuple(Address.parse(server.ready["native"])), **chosen) as browser:
        await browser.open("/test")
        yield browser


async def done(browser: Browser, path: str, body: Any = None, method: str = "POST") -> Any:
    answer = await (browser.post if method == "POST" else browser.delete)(f"/api/test{path}", body)
    assert answer.status == 200, answer.text
    return answer.json


async def looked(browser: Browser) -> Any:
    return (await browser.get("/api/test")).json


async def produced(control: Control) -> list[Any]:
    """The errors of a record's delivery."""
    errors: list[Any] = []
    producer = control.producer(**{"client.id": "shop", "retries": 0})
    producer.produce("orders", b"espresso", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert await trio.to_thread.run_sync(producer.flush, 30) == 0
    return errors


async def test_a_rule_is_added_fires_is_marked_at_its_request_and_goes(control: Control) -> None:
    async with worked(control) as browser:
        await done(browser, "/reset", {"confirm": "reset"})
        rule = await done(browser, "/faults", {"api": "Produce", "error": "INVALID_RECORD", "once": True})
        assert [error.name() for error in await produced(control)] == ["INVALID_RECORD"]
        assert await produced(control) == [None]
        told = await looked(browser)
        [standing] = told["faults"]
        assert (standing["number"], standing["fired"], standing["error"]) == (rule["number"], 1, "INVALID_RECORD")
        first, second = [each for each in told["requests"] if each["api"] == "Produce"]
        assert (first["fault"], first["errors"], first["client_id"], first["about"]) == (
            rule["number"],
            ["INVALID_RECORD"],
            "shop",
            ["orders-0"],
        )
        assert (second["fault"], second["errors"], second["is_answered"]) == (None, [], True)
        await done(browser, f"/faults/{rule['number']}", method="DELETE")
        await done(browser, "/disk-faults", {"effect": "delay", "operation": "sync", "delay_ms": 1})
        await done(browser, "/requests", method="DELETE")
        told = await looked(browser)
        assert (told["faults"], len(told["disk_faults"]), told["requests"]) == ([], 1, [])


async def test_clock_nodes_and_life(control: Control, tmp_path: Path) -> None:
    async with worked(control) as browser:
        before = await looked(browser)
        assert before["clock"]["is_frozen"] is False
        assert (await done(browser, "/clock/advance", {"seconds": 3600}))["now_ms"] >= before["clock"]["now_ms"] + 3_600_000
        assert (await done(browser, "/clock/freeze"))["is_frozen"] is True
        assert (await done(browser, "/clock/unfreeze"))["is_frozen"] is False
        nodes = [each["node"] for each in before["state"]["nodes"]]
        await done(browser, f"/nodes/{nodes[1]}/down")
        assert [each["is_up"] for each in (await looked(browser))["state"]["nodes"]] == [True, False]
        await done(browser, f"/nodes/{nodes[1]}/up")
        await done(browser, "/snapshot", {"path": str(tmp_path / "copy")})
        assert any((tmp_path / "copy").iterdir())
        await done(browser, "/crash", {"confirm": "crash"})
        crashed = await looked(browser)
        assert crashed["state"]["is_running"] is False
        assert (await done(browser, "/restart"))["starts"] == crashed["state"]["starts"] + 1


async def test_what_means_nothing_or_is_not_confirmed_is_refused(control: Control) -> None:
    async with worked(control) as browser:
        starts = (await looked(browser))["state"]["starts"]
        for path, body, status, message in (
            ("/crash", {}, 400, 'say {"confirm": "crash"}'),
            ("/reset", {"confirm": "Reset"}, 400, 'say {"confirm": "reset"}'),
            ("/faults", {"api": "Produce"}, 400, "a rule without an effect"),
            ("/faults/99/release", {}, 404, "there is no fault 99"),
            ("/nodes/..%2Fcrash/down", {}, 400, "number: '../crash' is no number"),
            ("/clock/advance", {"seconds": -1}, 400, "the clock goes forward"),
            ("/topics", {"name": "t"}, 404, "there is no such call"),
        ):
            answer = await browser.post(f"/api/test{path}", body)
            assert (answer.status, message in answer.json["error"]["message"]) == (status, True), answer.text
        assert (await looked(browser))["state"]["starts"] == starts


async def test_nothing_changes_by_another_page(control: Control) -> None:
    async with worked(control) as browser:
        answer = await browser.post("/api/test/crash", {"confirm": "crash"}, x_csrf_token="0")
        assert (answer.status, answer.json["error"]["name"]) == (403, "CSRF_TOKEN_MISSING")
        assert (await looked(browser))["state"]["is_running"] is True


async def test_a_port_that_is_not_there_or_wants_another_token_is_said(control: Control, shown: Shown) -> None:
    async with worked(control, control_token="of-somebody-else-again") as browser:
        answer = await browser.get("/api/test")
        assert (answer.status, answer.json["error"]["name"]) == (502, "CONTROL_PORT_REFUSES")
    async with worked(control, control=Address("127.0.0.1", 1)) as browser:
        answer = await browser.get("/api/test")
        assert (answer.status, answer.json["error"]["name"]) == (503, "NO_CONTROL_PORT")
    answer = await shown.browser.get("/api/test")
    assert (answer.status, answer.json["error"]["message"]) == (404, "this console was started without --control")
