from __future__ import annotations

import contextlib
import gc
import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

from triolog.server.config.broker_config import DEFAULT_NATIVE
from triolog.server.config.exposure import is_loopback
from triolog.server.listeners.opening import Addresses
from triolog.tools.cli import serve
from triolog.tools.cli.terminal.remote import DEFAULT_SERVER

from .conftest import call


def test_garbage_is_looked_for_seldom_while_logs_are_opened_and_as_always_once_they_are_served(tmp_path: Path) -> None:
    usual, ready = gc.get_threshold(), tmp_path / "ready"
    with serve.seldom_collecting():
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 100 * usual[0]
        serve._started(str(ready), Addresses(DEFAULT_NATIVE, None))
        assert gc.get_threshold() == usual
    assert gc.get_threshold() == usual
    assert "native" in json.loads(ready.read_text(encoding="utf-8"))
    with contextlib.suppress(OSError), serve.seldom_collecting():
        raise OSError("a start that fails")
    assert gc.get_threshold() == usual


def test_without_arguments_it_serves_both_protocols_on_loopback_and_prints_three_lines_that_work(tmp_path: Path) -> None:
    assert (DEFAULT_SERVER, serve.DEFAULT_KAFKA) == ("127.0.0.1:9095", "127.0.0.1:9092")
    assert is_loopback("127.0.0.1")
    free_ports = {"TRIOLOG_NATIVE": "127.0.0.1:0", "TRIOLOG_KAFKA": "127.0.0.1:0"}
    command = [sys.executable, "-m", "triolog.tools.cli"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([*command, "serve"], cwd=tmp_path, env={**os.environ, **free_ports}, **streams) as process:
        kcat, python, console = (process.stdout.readline().split(maxsplit=1) for _ in range(3))
        assert [kcat[0], python[0], console[0]] == ["kcat", "Python", "console"]
        host, _, port = kcat[1].partition("kcat -b ")[2].split()[0].partition(":")
        socket.create_connection((host, int(port))).close()
        printed = subprocess.run([sys.executable, *shlex.split(python[1])[1:]], capture_output=True, text=True, check=True)
        assert printed.stdout == "[]\n"
        name, *arguments = shlex.split(console[1])
        assert (name, arguments[:2]) == ("triolog", ["console", "-s"])
        assert call("topics", "list", "-s", arguments[2]).exit_code == 0
        refused = call("topics", "list", "-b", f"{host}:{port}")
        assert refused.exit_code == 3
        assert f"is {port} the port for Kafka clients? Commands use the native one: --server {host}:9095" in refused.stderr
        process.terminate()
    assert process.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [serve.DEFAULT_DATA_DIR]


def test_a_configuration_file_without_data_directories_and_kafkas_options_are_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("node_id = 5\n")
    assert "names no data_dirs. Add them, or give --data-dir DIR" in call("serve", "-c", file).stderr
    assert "Did you mean --kafka PORT (for Kafka clients)" in call("serve", "--port", "9092").stderr
    assert "--kafka HOST:PORT and --native HOST:PORT" in call("serve", "--host", "0.0.0.0").stderr
    assert "other machines reach that" in call("serve", "-d", tmp_path / "data", "--kafka", "0.0.0.0").stderr
