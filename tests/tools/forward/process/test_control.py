from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.native.messages import NewTopic
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.forward.errors import SettingsError
from triolog.tools.forward.process.control import serve_requests
from triolog.tools.forward.process.place import LinkPlace, ask

from tests.support.forwarding import PATIENCE_S, TOPIC, Forwarding, until
from tests.support.server_process import ServerFolder, ServerProcess
from tests.tools.cli.conftest import call

ODD: Final = (
    b"{}",
    b"[]",
    b"\xff",
    b'"x"',
    b"1",
    b"null",
    b"",
    b"[" * 4090,
    b'{"command":["pause"]}',
    b'{"command":{}}',
    b'{"command":"drain","timeout_s":"x"}',
    b'{"command":"drain","timeout_s":{}}',
    b'{"command":"drain","timeout_s":-1}',
    b'{"command":"drain","timeout_s":NaN}',
    b'{"command":"drain","timeout_s":1e999}',
    b'{"command":"drain","timeout_s":' + b"9" * 4000 + b"}",
)


ANSWERS: Final = (
    {"state": "runs"},
    {"state": {}, "link": 1, "troubles": {"x": 1}},
    {"state": "\x1b]0;PWN", "link": "\x1b]0;PWN", "error": "\x1b]0;PWN", "error_ms": 1e99},
)


def asked(path: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE_S)
        stream.connect(str(path))
        stream.sendall(line + b"\n")
        data = b"".join(iter(lambda: stream.recv(65536), b""))
    answer: dict[str, Any] = json.loads(data)
    return answer


async def test_only_the_owner_may_command_a_link_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / TOPIC).mkdir(mode=0o777)
    place, umask = LinkPlace.take(tmp_path, TOPIC), os.umask(0)

    async def answer(line: bytes) -> dict[str, Any]:
        return {}

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_requests, place, answer))
            assert place.control.stat().st_mode & 0o777 == 0o600
            nursery.cancel_scope.cancel()
    finally:
        os.umask(umask)
        place.release()


def test_a_full_disk_is_named_when_a_link_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SettingsError, match=r"lock: No space left on device\. Free space"):
        LinkPlace.take(tmp_path, TOPIC)
    monkeypatch.undo()
    LinkPlace.take(tmp_path, TOPIC).release()


@pytest.mark.merge
def test_odd_orders_are_answered_with_an_error_and_the_process_stops_when_told(pair: Forwarding, tmp_path: Path) -> None:
    pair.append([b"one"])
    command = ("forward", "--server", str(pair.source.native), "--to", pair.upstream.bootstrap_servers, "--topics", TOPIC)
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "triolog.tools.cli", *command, "--link", "link", "--state-dir", str(tmp_path / "state")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    control = tmp_path / "state" / "link" / "control"
    try:
        until(control.exists, "the socket")
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == [b"one"], "the first record")
        for line in ODD:
            assert asked(control, line).keys() == {"error"}, line
        assert ask(str(control), {"command": "status"}, PATIENCE_S)["link"] == "link"
        pair.append([b"two"])
        until(lambda: pair.values() == [b"one", b"two"], "the second record")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A stranger at the socket of a link, who answers one connection with this."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)

        def serve() -> None:
            stream, _ = listening.accept()
            with stream:
                stream.recv(4096)
                with suppress(OSError):
                    stream.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(PATIENCE_S)


@pytest.mark.parametrize("answer", [b"[" * 100_000, b"[]", b"nothing\n", b"x" * (65 * 2**20)])
def test_an_odd_answer_is_an_error_of_its_kind(answer: bytes, tmp_path: Path) -> None:
    with answering(tmp_path / "control", answer), pytest.raises((ValueError, ConnectionError)):
        ask(str(tmp_path / "control"), {"command": "status"}, PATIENCE_S)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("command", ["status", "top", "drain l"])
def test_a_stranger_in_place_of_a_link_is_one_line(answer: dict[str, Any], command: str, tmp_path: Path) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "lock").write_text("1")
    with answering(tmp_path / "l" / "control", json.dumps(answer).encode()):
        result = call("forward", *command.split(), "--state-dir", tmp_path)
    assert (result.exit_code, len(result.stderr.splitlines()), "\x1b" in result.output) == (1, 1, False)


def keys(folder: Path, upstream: BlockingBroker) -> str:
    file = folder / "server.toml"
    file.write_text(
        f'[forward_process]\nstate_dir = "{folder}/links"\n\n[[forward]]\nname = "link"\n'
        f'to = "{upstream.bootstrap_servers}"\ntopics = ["{TOPIC}"]\nmax_delay_ms = 20\n'
    )
    return str(file)


def produce(server: ServerProcess, *values: bytes) -> None:
    with BlockingClient(server.address) as client:
        with suppress(Exception):
            BlockingAdmin(client).create_topics([NewTopic(TOPIC, 1)])
        with BlockingProducer(client) as producer:
            for value in values:
                producer.send(TOPIC, value=value)
            producer.flush()


def child_of(folder: Path) -> int:
    lock = folder / "links" / "link" / "lock"
    until(lambda: lock.exists() and lock.read_text().strip(), "the child")
    return int(lock.read_text())


def is_alive(process: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(upstream: BlockingBroker, *values: bytes) -> None:
    until(lambda: TOPIC in upstream.topics() and upstream.log(TOPIC).values(0) == list(values), f"{values} upstream")


def test_the_next_process_reports_a_crash_but_no_clean_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    LinkPlace.take(tmp_path, "link").release()
    LinkPlace.take(tmp_path, "link").release()
    assert caplog.messages == []
    crashed = "import os; from pathlib import Path; from triolog.tools.forward.process.place import LinkPlace;"
    command = [sys.executable, "-c", f"{crashed} LinkPlace.take(Path(os.sys.argv[1]), 'link'); os.abort()", str(tmp_path)]
    process = subprocess.Popen(command)
    assert process.wait(PATIENCE_S) == -signal.SIGABRT
    LinkPlace.take(tmp_path, "link").release()
    LinkPlace.take(tmp_path, "link").release()
    assert caplog.messages == [f"last process crashed or was killed: link=link pid={process.pid}"]


@pytest.mark.merge
def test_a_child_that_aborts_ends_neither_its_server_nor_its_link(tmp_path: Path, upstream: BlockingBroker) -> None:
    """As librdkafka's assertions do, which Python cannot catch."""
    with ServerFolder(tmp_path) as folder:
        server = folder.start("--config", keys(tmp_path, upstream))
        produce(server, b"a")
        wait_for(upstream, b"a")
        os.kill(child_of(tmp_path), signal.SIGABRT)
        produce(server, b"b")
        wait_for(upstream, b"a", b"b")
        assert "forward process ended with exit code -6, starting again" in server.stderr()
        assert server.stop() == 0


@pytest.mark.merge
def test_a_child_ends_when_its_server_was_killed(tmp_path: Path, upstream: BlockingBroker) -> None:
    with ServerFolder(tmp_path) as folder:
        server = folder.start("--config", keys(tmp_path, upstream))
        child = child_of(tmp_path)
        server.kill()
        until(lambda: not is_alive(child), "the end of the child")


def test_links_that_make_no_sense_are_refused_before_anything_is_served(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[[forward]]\nname = "link"\nto = "a:1"\ntopic = "t"\n')
    result = call("serve", "--data-dir", tmp_path / "data", "--config", file)
    assert result.exit_code == 2
    assert "[[forward]] link: unknown key 'topic'. Known keys: name, to, topics" in result.stderr.replace("\n", " ")
