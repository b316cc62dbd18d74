from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from triolog.protocol.types import TopicPartition
from triolog.tools.forward.process.place import LinkPlace

from tests.support.forwarding import GROUP, LINK, NODE, TOPIC, Forwarding, until
from tests.support.server_process import COMMAND, environment
from tests.tools.cli.conftest import call
from tests.tools.forward.conftest import pair

pytestmark = pytest.mark.merge  # each test starts forwarders as processes

__all__ = ["pair"]


def one_link(pair: Forwarding, state_dir: Path, *more: str) -> list[str]:
    return [
        *("--server", str(pair.source.native), "--to", pair.upstream.bootstrap_servers, "--topics", TOPIC),
        *("--link", LINK, "--node", NODE, "--max-delay-ms", "20", "--state-dir", str(state_dir), *more),
    ]


def forward(*arguments: str) -> Result:
    return call("forward", *arguments)


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that forwards; it can be asked when the block begins."""
    ready, errors = folder / "ready", folder / "stderr"
    ready.unlink(missing_ok=True)
    with errors.open("ab") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "forward", "--ready-file", str(ready), *arguments], env=environment(), stdout=stderr, stderr=stderr
        )
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the process")
        assert process.poll() is None, errors.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def status(state_dir: Path) -> dict[str, Any]:
    result = forward("status", LINK, "--state-dir", str(state_dir), "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_links_come_from_options_or_a_file_and_end_when_nothing_is_left(pair: Forwarding, tmp_path: Path) -> None:
    pair.append([b"a", b"b"])
    result = forward(*one_link(pair, tmp_path, "--drain"))
    assert result.exit_code == 0, result.output
    assert pair.values() == [b"a", b"b"]
    file = tmp_path / "forward.toml"
    file.write_text(
        f'server = "{pair.source.native}"\nnode = "gateway"\nstate_dir = "{tmp_path}"\n[[forward]]\nname = "one"\n'
        f'to = "{pair.upstream.bootstrap_servers}"\ntopics = ["{TOPIC}"]\ntarget = "{{node}}.{{topic}}"\n'
    )
    result = forward("--config", str(file), "--drain")
    assert result.exit_code == 0, result.output
    assert pair.values(f"gateway.{TOPIC}") == [b"a", b"b"]


def test_a_topic_that_cannot_be_forwarded_fails_a_drain(pair: Forwarding, tmp_path: Path) -> None:
    pair.upstream.create_topic(TOPIC, 1)
    pair.source.create_partitions(TOPIC, 2)
    with running(tmp_path, *one_link(pair, tmp_path)):
        until(lambda: status(tmp_path)["troubles"], "trouble")
        asked = forward("drain", LINK, "--timeout", "0.2", "--state-dir", str(tmp_path))
    for result in (asked, forward(*one_link(pair, tmp_path, "--drain"))):
        assert result.exit_code == 1
        assert f"topic {TOPIC}: it has 2 partitions, but {TOPIC} upstream has 1" in result.stderr


def test_what_makes_no_sense_is_refused(tmp_path: Path, pair: Forwarding) -> None:
    link = ("--to", "a:1", "--link", "x")
    topics = (*link, "--topics", "t")
    for arguments, message in (
        ((), "Give --to, --topics and --link, or --config FILE"),
        (link, "Set topics or topic_pattern"),
        ((*link, "--topics", "__consumer_offsets"), "a topic of the server itself"),
        ((*topics, "--link", "a/b"), "name: 'a/b' is not a name"),
        ((*topics, "--kafka", "acks=1"), "kafka: acks is set by the link"),
        ((*topics, "--kafka", "sasl.password=x"), "secrets are not allowed in the file"),
        ((*topics, "--window", "25:00-26:00"), "is not a span of a day"),
        ((*topics, "--server", "nowhere"), "is not HOST:PORT"),
        ((*topics, "--kafka", "no.such.setting=1"), 'property: "no.such.setting"'),
    ):
        result = forward("--state-dir", str(tmp_path), "--server", str(pair.source.native), *arguments)
        assert result.exit_code != 0
        assert message in result.stderr.replace("\n", " ")


def test_a_second_process_for_a_link_ends_at_once(tmp_path: Path, pair: Forwarding) -> None:
    held = LinkPlace.take(tmp_path, LINK)
    try:
        result = forward(*one_link(pair, tmp_path))
        assert result.exit_code == 1
        assert f"process {os.getpid()} already runs link {LINK}" in result.stderr
    finally:
        held.release()


def test_a_link_is_asked_paused_resumed_drained_and_stopped(pair: Forwarding, tmp_path: Path) -> None:
    place = ("--state-dir", str(tmp_path))
    pair.append([b"a"] * 10)
    with running(tmp_path, *one_link(pair, tmp_path)) as process:
        assert forward("drain", LINK, *place).stdout == f"{LINK}: nothing is left\n"
        found = status(tmp_path)
        assert (found["state"], found["records"], found["backlog_records"]) == ("running", 10, 0)
        assert found["partitions"][0]["target"] == TOPIC

        assert forward("pause", LINK, *place).stdout == f"{LINK} is paused\n"
        until(lambda: status(tmp_path)["state"] == "paused", "the pause")
        pair.append([b"b"] * 5)
        until(lambda: status(tmp_path)["backlog_records"] == 5, "the backlog", 30)
        refused = forward("drain", LINK, *place)
        assert (refused.exit_code, "the link is paused. Resume it first" in refused.stderr) == (1, True)

        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with running(tmp_path, *one_link(pair, tmp_path)):  # and stays paused
        until(lambda: status(tmp_path)["state"] == "paused", "the pause")
        assert len(pair.values()) == 10
        assert forward("resume", LINK, *place).stdout == f"{LINK} resumed\n"
        forward("drain", LINK, *place)
        assert len(pair.values()) == 15
        shown = forward("status", *place).stdout
        assert LINK in shown
        assert "running" in shown


def test_a_drain_does_not_wait_for_a_window(pair: Forwarding, tmp_path: Path) -> None:
    pair.append([b"a"])
    with running(tmp_path, *one_link(pair, tmp_path, "--window", "mon 00:00-00:01", "--window", "mon 00:02-00:03")):
        assert status(tmp_path)["state"] in ("waiting", "connecting")
        assert forward("drain", LINK, "--state-dir", str(tmp_path)).exit_code == 0
        assert pair.values() == [b"a"]


def test_links_that_do_not_run_are_said_to(tmp_path: Path) -> None:
    result = forward("status", "nothing", "--state-dir", str(tmp_path))
    assert result.exit_code == 3
    assert "no process in" in result.stderr
    assert forward("pause", "nothing", "--state-dir", str(tmp_path)).exit_code == 3


def answer_of(port: int, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_answered_to_whom_a_servers_are(pair: Forwarding, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-metrics")
    port = _free_port()
    links = one_link(pair, tmp_path, "--metrics", f"0.0.0.0:{port}", "--metrics-token-file", str(token))
    with running(tmp_path, *links):
        assert answer_of(port)[0] == 401
        assert answer_of(port, Authorization="Bearer another-token-of-metrics")[0] == 401
        assert answer_of(port, Authorization="Bearer a-token-of-metrics", Origin="http://evil.example")[0] == 403
        pair.append([b"a"] * 10)
        forward("drain", LINK, "--state-dir", str(tmp_path))
        status, text = answer_of(port, Authorization="Bearer a-token-of-metrics")
        assert status == 200
        assert f'triolog_forward_records_total{{link="{LINK}"}} 10.0' in text
        assert f'triolog_forward_state{{link="{LINK}",state="running"}} 1.0' in text
        assert f'triolog_forward_backlog_records{{link="{LINK}"}} 0.0' in text
    with running(tmp_path, *one_link(pair, tmp_path, "--metrics", f"127.0.0.1:{port}")):
        assert answer_of(port, Host="evil.example")[0] == 403
        assert answer_of(port)[0] == 200


def test_metrics_that_others_reach_without_a_token_are_a_warning(pair: Forwarding, tmp_path: Path) -> None:
    port = _free_port()
    with running(tmp_path, *one_link(pair, tmp_path, "--metrics", f"0.0.0.0:{port}", "--insecure")) as process:
        assert answer_of(port)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert f"insecure metrics=0.0.0.0:{port}" in (tmp_path / "stderr").read_text()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def reset(pair: Forwarding, state_dir: Path, *arguments: str) -> Result:
    return forward(*one_link(pair, state_dir), "reset", "--topic", TOPIC, *arguments)


def test_a_topic_that_was_made_anew_goes_on_when_somebody_says_so(pair: Forwarding, tmp_path: Path) -> None:
    pair.append([b"old"] * 5)
    pair.drain()
    pair.source.delete_topic(TOPIC)
    pair.source.create_topic(TOPIC)
    pair.append([b"new"] * 2)
    result = reset(pair, tmp_path, "--start", "earliest")
    assert (result.exit_code, result.stdout) == (0, f"{TOPIC}-0 continues at 0\n"), result.output
    pair.drain()
    assert pair.values() == [b"old"] * 5 + [b"new"] * 2


def test_a_record_is_passed_over_and_a_place_that_is_not_there_refused(pair: Forwarding, tmp_path: Path) -> None:
    pair.append([b"0", b"1", b"2"])
    pair.drain(start="latest")
    for arguments, message in (
        (("--start", "7"), f"{TOPIC}-0 has offsets 0 up to 3 (exclusive), and not 7"),
        (("--start", "soon"), "'soon' is not a position"),
        (("--start", "0", "--partition", "3"), f"{TOPIC} has no partition 3"),
    ):
        refused = reset(pair, tmp_path, *arguments)
        assert (refused.exit_code, message in refused.stderr) == (2, True)
    for position, offset in (("-1", 2), ("+1", 1), ("-9", 0), ("+9", 3), ("end", 3)):
        assert reset(pair, tmp_path, "-o", position).stdout == f"{TOPIC}-0 continues at {offset}\n"
    assert reset(pair, tmp_path, "--partition", "0", "--start", "1").exit_code == 0
    assert pair.upstream.groups.committed(GROUP) == {TopicPartition(TOPIC, 0): 1}
    pair.drain()
    assert pair.values() == [b"1", b"2"]
