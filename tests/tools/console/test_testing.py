from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import trio
import triolog
from triolog.server.config.values import Address

from tests.support.browser_wire import Browser
from tests.support.control_port import Control, started
from tests.support.forked_servers import ServerForker
from tests.support.forwarding import until
from tests.support.registry_client import RegistryClient, record
from tests.support.server_process import COMMAND, DEADLINE_S, ServerFolder, ServerProcess, environment
from tests.tools.cli.conftest import call
from tests.tools.console.conftest import Shown, showing

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
            ("/crash", {}, 400, '{"confirm": "crash"}'),
            ("/reset", {"confirm": "Reset"}, 400, '{"confirm": "reset"}'),
            ("/faults", {"api": "Produce"}, 400, "a rule without an effect"),
            ("/faults/99/release", {}, 404, "there is no fault 99"),
            ("/nodes/..%2Fcrash/down", {}, 400, "number: '../crash' is not a number"),
            ("/clock/advance", {"seconds": -1}, 400, "the clock only moves forward"),
            ("/topics", {"name": "t"}, 404, "no such call"),
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


def asked(address: str, path: str) -> Any:
    """From this process, without what proxies variables say."""
    with urlopen(f"http://{address}{path}", timeout=DEADLINE_S) as reply:
        return json.loads(reply.read())


@pytest.mark.merge
def test_the_command_says_where_it_listens_and_ends_when_it_is_told() -> None:
    with triolog.blocking.open(topics=["t"], native="127.0.0.1:0") as broker:
        server = "{}:{}".format(*broker.native)
        command = [*COMMAND, "console", "--server", server]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
            said = process.stdout.readline()
            assert said.startswith("http://127.0.0.1:")
            assert said.endswith(f"/ shows {server}\n")
            address = said.split("/")[2]
            assert [each["name"] for each in asked(address, "/api/topics")["topics"]] == ["t"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0


def console_of(server: ServerProcess) -> str:
    address: str = json.loads(server.ready_file.read_text())["console"]
    return address


def children(pid: int) -> list[int]:
    return [int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()]


@pytest.mark.merge
def test_a_server_has_its_console_beside_it_and_has_it_again_when_it_dies(tmp_path: Path) -> None:
    arguments = ("--console", "127.0.0.1:0", "--control", "127.0.0.1:0")
    with ServerFolder(tmp_path, arguments=arguments) as folder:
        server = folder.start()
        address = console_of(server)
        with urlopen(f"http://{address}/", timeout=DEADLINE_S) as reply:
            assert '"has_control":true' in reply.read().decode(), "a server for tests"
        assert asked(address, "/api/topics")["found"] == 0
        [console] = children(server.pid)
        os.kill(console, signal.SIGKILL)
        assert asked(address, "/api/topics")["found"] == 0  # waits at the same address
        [again] = children(server.pid)
        assert again != console
        assert server.stop() == 0
        assert not Path(f"/proc/{again}").exists()
        with pytest.raises(URLError):
            asked(address, "/api/topics")


@pytest.mark.merge
def test_the_links_of_a_server_are_shown_by_its_console(tmp_path: Path) -> None:
    settings = tmp_path / "server.toml"
    settings.write_text(
        f'[forward_process]\nstate_dir = "{tmp_path}/links"\n\n[[forward]]\nname = "link"\nto = "127.0.0.1:1"\ntopics = ["t"]\n'
    )
    with ServerFolder(tmp_path, arguments=("--console", "127.0.0.1:0", "--config", str(settings))) as folder:
        server = folder.start()
        until(lambda: (tmp_path / "links" / "link" / "control").exists(), "the link")
        [link] = asked(console_of(server), "/api/forward")["links"]
        assert (link["link"], link["to"]) == ("link", "127.0.0.1:1")
        assert server.stop() == 0


@pytest.mark.merge
@pytest.mark.parametrize("has_users", [False, True])
def test_a_console_decodes_by_the_registry_of_its_server_unless_that_wants_a_password(tmp_path: Path, has_users: bool) -> None:
    pytest.importorskip("avro", reason="the extra registry is not installed")
    login = (
        'kafka_security = "sasl_plaintext"\nsasl_enabled_mechanisms = "OAUTHBEARER"\nsasl_oauthbearer_unsecured_tokens = true\n'
    )
    settings = tmp_path / "server.toml"
    settings.write_text(login if has_users else "")
    arguments = ("--console", "0", "--schema-registry", "0", "--config", str(settings))
    with ServerFolder(tmp_path, arguments=arguments) as folder:
        server = folder.start()
        ready = json.loads(server.ready_file.read_text())
        if not has_users:
            assert RegistryClient(f"http://{ready['schema_registry']}").register("t-value", record("Cup", "drink: string")) == 1
        with triolog.blocking.connect(ready["native"]) as client:
            client.create_topic("t")
            client.append("t", [b"\0\0\0\0\1\x06tea"])
        [shown] = asked(ready["console"], "/api/topics/t/records")["records"]
        value = shown["value"]
        assert (value["kind"], value.get("note")) == (("hex", None) if has_users else ("schema", "schema 1"))
        assert server.stop() == 0


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    serve = ("serve", "--data-dir", str(tmp_path), "--console")
    with triolog.blocking.open(native="127.0.0.1:0") as broker:
        taken = "{}:{}".format(*broker.native)
        for arguments, exit_code, reason in (
            (("console", "--listen", "0.0.0.0:0"), 2, "other machines can reach"),
            (("console", "--listen", "nowhere"), 2, "'nowhere' is not HOST:PORT"),
            (("console", "--password-file", __file__), 2, "--password-file needs --user"),
            ((*serve, "nowhere"), 2, "'nowhere' is not HOST:PORT"),
            ((*serve, "0.0.0.0:0"), 2, "other machines can reach"),
            (("console", "--server", taken, "--listen", taken), 3, f"cannot listen on {taken}"),
        ):
            result = call(*arguments)
            assert (result.exit_code, reason in result.stderr) == (exit_code, True), result.stderr
