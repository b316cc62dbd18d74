"""`triolog ingest`: its options, and links under a server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from triolog.tools.client.blocking.client import BlockingClient

from tests.support.forwarding import until
from tests.support.scripted_mqtt import FILTER, LINK, PUBACK, TOPIC, ScriptedBroker
from tests.support.server_process import ServerFolder
from tests.tools.cli.conftest import call
from tests.tools.forward.process.test_control import is_alive

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")

UPSTREAM: Final = '[[forward]]\nname = "up"\nto = "127.0.0.1:1"\ntopics = ["t"]\n'


def table(broker: str, more: str = "") -> str:
    return f'[[ingest]]\nname = "{LINK}"\nbroker = "{broker}"\n{more}\n[[ingest.map]]\nfilter = "{FILTER}"\ntopic = "{TOPIC}"\n'


def test_invalid_options_are_refused_with_the_reason() -> None:
    link = ("--broker", "a:1", "--name", "x")
    for arguments, message in (
        ((), "Give --broker, --name and --map, or --config FILE"),
        ((*link, "--map", "t"), "--map 't' is not FILTER=TOPIC"),
        ((*link, "--map", "a#=t"), "'a#' is not a topic filter"),
        ((*link, "--map", "$share/g/a=t"), "shared subscriptions have no session of their own"),
        ((*link, "--map", "a=__consumer_offsets"), "a topic of the server itself"),
        ((*link, "--map", "a={x}"), "for the first level"),
        ((*link, "--map", "a=t", "--timestamp", "time"), "is not a JSON pointer"),
        ((*link, "--map", "a=t", "--ca-file", __file__), "ca_file and cert_file need tls = true"),
        ((*link, "--map", "a=t", "--broker-password-file", __file__), "password needs user"),
    ):
        result = call("ingest", "mqtt", *arguments)
        assert (result.exit_code, message in result.stderr) == (2, True), (arguments, result.stderr)


def test_a_status_without_links_says_so(tmp_path: Path) -> None:
    result = call("ingest", "--state-dir", tmp_path, "status")
    assert (result.exit_code, "runs a link" in result.stderr) == (3, True)


@pytest.mark.merge  # a server and its child are processes
def test_a_server_runs_its_links_shows_them_and_reads_them_again(tmp_path: Path) -> None:
    file, links = tmp_path / "server.toml", tmp_path / "links"
    head = f'[ingest_process]\nstate_dir = "{links}"\n[forward_process]\nstate_dir = "{tmp_path}/up"\n{UPSTREAM}'
    with contextlib.closing(ScriptedBroker()) as broker, ServerFolder(tmp_path) as folder:
        file.write_text(head + table(broker.address))
        server = folder.start("--config", str(file), "--metrics", "127.0.0.1:0")
        with broker.greeted() as peer:
            peer.publish(b"one", 1)
            peer.expect(PUBACK)
            with BlockingClient(server.address) as client:
                assert TOPIC in client.topics()

            def scraped() -> str:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{server.address_of('metrics').port}/metrics", timeout=60
                ) as answer:
                    return str(answer.read().decode())

            until(lambda: f'triolog_ingest_records_total{{link="{LINK}"}} 1.0' in scraped(), "the link in the metrics")
            assert f'triolog_ingest_state{{link="{LINK}",state="running"}} 1.0' in scraped()
            assert 'triolog_forward_state{link="up",state=' in scraped(), "the metrics of the other child, too"
            shown = call("ingest", "--state-dir", links, "status", "--json")
            assert json.loads(shown.stdout)["delivery"] == "at-least-once"
            for command in ("status", "top"):
                shown = call("ingest", "--state-dir", links, command)
                assert (shown.exit_code, LINK in shown.stdout, "at-least-once" in shown.stdout) == (0, True, True)

            file.write_text(head + table(broker.address, "quality = 3"))
            os.kill(server.pid, signal.SIGHUP)
            server.wait_stderr("unknown key 'quality'")
            file.write_text(head + table(broker.address, "qos = 2"))
            os.kill(server.pid, signal.SIGHUP)
            assert peer.next() is None, "the link starts again"
        child = int((links / LINK / "lock").read_text())
        with broker.greeted(session=True):
            call("ingest", "--state-dir", links, "pause", LINK)
            os.kill(child, signal.SIGKILL)
            server.wait_stderr("ingest process ended with exit code -9, starting again")
        until(
            lambda: json.loads(call("ingest", "--state-dir", links, "status", "--json").stdout)["state"] == "paused",
            "the pause",
        )
        child = int((links / LINK / "lock").read_text())
        assert server.stop() == 0
        assert not is_alive(child)


def test_links_of_a_server_with_an_unknown_key_are_refused_before_it_serves(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(table("a:1", "quality = 3"))
    result = call("serve", "--data-dir", tmp_path / "data", "--config", file)
    assert (result.exit_code, f"[[ingest]] {LINK}: unknown key 'quality'" in result.stderr) == (2, True)
