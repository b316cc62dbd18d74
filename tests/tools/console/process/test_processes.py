from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from triolog.server.embedded import BlockingBroker

from tests.support.forwarding import until
from tests.support.server_process import COMMAND, DEADLINE_S, ServerFolder, ServerProcess, environment

from ...cli.conftest import call


def asked(address: str, path: str) -> Any:
    """From this process, without what proxies variables say."""
    with urlopen(f"http://{address}{path}", timeout=DEADLINE_S) as reply:
        return json.loads(reply.read())


def test_the_command_says_where_it_listens_and_ends_when_it_is_told() -> None:
    with BlockingBroker(topics=["t"]) as broker:
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


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    serve = ("serve", "--data-dir", str(tmp_path), "--console")
    with BlockingBroker() as broker:
        taken = "{}:{}".format(*broker.native)
        for arguments, exit_code, reason in (
            (("console", "--listen", "0.0.0.0:0"), 2, "other machines reach that"),
            (("console", "--listen", "nowhere"), 2, "'nowhere' is not HOST:PORT"),
            (("console", "--password-file", __file__), 2, "--password-file is for --user"),
            ((*serve, "nowhere"), 2, "'nowhere' is not HOST:PORT"),
            ((*serve, "0.0.0.0:0"), 2, "other machines reach that"),
            (("console", "--server", taken, "--listen", taken), 3, f"cannot listen on {taken}"),
        ):
            result = call(*arguments)
            assert (result.exit_code, reason in result.stderr) == (exit_code, True), result.stderr
