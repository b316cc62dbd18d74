"""`triolog serve --metrics`: a process that answers over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request

from triolog.protocol.native.messages import PlainRecord

from tests.support.server_process import ServerFolder, environment, python_command
from tests.support.wire_client import WireClient


def test_a_server_tells_of_itself_over_http(server_folder: ServerFolder) -> None:
    server = server_folder.start("--metrics", "127.0.0.1:0")
    address = json.loads(server.ready_file.read_text())["metrics"]
    with urllib.request.urlopen(f"http://{address}/readyz", timeout=30) as answer:
        assert answer.read() == b"ready\n"
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        text = answer.read().decode()
    assert "\ntriolog_directory_in_service{" in text
    assert "\nprocess_resident_memory_bytes " in text
    assert server.stop() == 0


def test_an_address_that_is_taken_ends_the_start_with_its_name(server_folder: ServerFolder) -> None:
    first = server_folder.start("--metrics", "127.0.0.1:0")
    address = json.loads(first.ready_file.read_text())["metrics"]
    server_folder.data_dirs = ("other",)
    second = server_folder.spawn("--metrics", address)
    assert second.wait_exit() == 3
    assert f"cannot listen on {address}" in second.stderr()


def test_without_the_extra_it_is_said_how_to_get_it(server_folder: ServerFolder) -> None:
    hidden = "import importlib.util as u; real = u.find_spec; u.find_spec = lambda n, *a: None if n == 'h11' else real(n, *a)"
    command = [*python_command(hidden), "serve", "--data-dir", str(server_folder.data_dir), "--metrics", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 2
    assert "--metrics needs h11: pip install 'triolog[metrics]'" in done.stderr


def test_without_the_option_nothing_of_the_extra_is_loaded() -> None:
    loaded = "import sys, triolog.server.app; print([n for n in ('h11', 'prometheus_client') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_server_for_tests_tells_how_often_its_faults_fired(server_folder: ServerFolder) -> None:
    rules = server_folder.path / "rules.yaml"
    rules.write_text("disk_faults:\n- {effect: delay, operation: write, delay_ms: 1}\n")
    server = server_folder.start("--metrics", "127.0.0.1:0", "--faults", str(rules))
    address = json.loads(server.ready_file.read_text())["metrics"]
    with WireClient.connect(server.address) as client:
        client.create_topic("t", 1)
        client.produce("t", 0, (PlainRecord(None, None, b"v"),))
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert counted['triolog_connections_accepted_total{protocol="native"}'] == "1.0"
    assert counted['triolog_request_seconds_count{api="produce",protocol="native"}'] == "1.0"
    (fired,) = [line for line in lines if line.startswith('triolog_faults_fired_total{rule="disk-1"}')]
    assert float(fired.split()[-1]) > 0
    assert server.stop() == 0
