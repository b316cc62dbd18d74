"""`triolog serve` as a process: what it refuses and with which exit code, what it writes, how directories fail, its stop. A
system without Linux's own calls: `RWF_NOWAIT` and `fdatasync` are taken away before the server is imported."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from triolog.protocol.errors import ErrorCode
from triolog.protocol.extras import how_to_install
from triolog.protocol.native import messages
from triolog.protocol.native.connection import CONNECTION_CLOSED, Response
from triolog.protocol.types import LATEST_TIMESTAMP
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, LOCK_FILE
from triolog.tools.cli.main import main

from tests.support.forked_servers import ServerForker
from tests.support.logs import START_MS, batch, scan_for_timestamp
from tests.support.server_process import COMMAND, DEADLINE_S, ServerFolder, environment, python_command
from tests.support.wire_client import WireClient, error_of

CANNOT_SERVE = 3
WRONG_CONFIGURATION = 2


def words(text: str) -> str:
    """Without the line breaks of a terminal's width."""
    return " ".join(text.split())


def test_a_second_server_on_a_directory_is_refused_with_its_owner_and_leaves_no_ready_file(
    server_folder: ServerFolder,
) -> None:
    first = server_folder.start()
    ready = server_folder.path / "second.ready"
    ready.write_text("left by an earlier server")
    arguments = ("--data-dir", str(server_folder.data_dir), "--native", "127.0.0.1:0", "--ready-file", str(ready))
    refused = subprocess.run(
        [*COMMAND, "serve", *arguments], env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert refused.returncode == CANNOT_SERVE
    assert f"process {first.pid}" in refused.stderr
    assert str(server_folder.data_dir) in words(refused.stderr)
    assert "Traceback" not in refused.stderr
    assert not ready.exists()
    with WireClient.connect(first.address) as client:
        client.create_topic("still-served")


def test_removing_the_lock_file_under_a_running_server_lets_no_second_one_in(server_folder: ServerFolder) -> None:
    first = server_folder.start()
    (server_folder.data_dir / LOCK_FILE).unlink()
    refused = server_folder.spawn()
    assert refused.wait_exit() == CANNOT_SERVE
    assert f"(Kafka or triolog) holds the lock of log directory {server_folder.data_dir}" in words(refused.stderr())
    assert first.stop() == 0
    assert server_folder.start().stop() == 0


def test_a_taken_port_is_refused_by_name_and_leaves_a_clean_directory(server_folder: ServerFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        refused = server_folder.spawn("--native", address)
        assert refused.wait_exit() == CANNOT_SERVE
    assert address in refused.stderr()
    assert "Traceback" not in refused.stderr()
    assert (server_folder.data_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert server_folder.start().stop() == 0


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, **variables: str) -> str:
    """What `triolog serve` says that refuses its configuration; in this process, for a start takes a second."""
    monkeypatch.chdir(folder)
    with monkeypatch.context() as here:
        here.setattr(os, "environ", environment(variables))
        here.setattr(logging, "root", logging.RootLogger(logging.WARNING))  # for `serve` says where its log goes
        result = CliRunner().invoke(main, ["serve", *arguments])
    assert result.exit_code == WRONG_CONFIGURATION
    assert isinstance(result.exception, SystemExit)
    assert not (folder / "data").exists()
    return result.output


def test_a_ready_file_never_replaces_a_pipe_a_device_or_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--ready-file /dev/stdout`, as root, would leave the machine without that device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    for name in ("pipe", "link"):
        assert f"--ready-file {name}: not a regular file" in refused(
            tmp_path, monkeypatch, "--data-dir", "data", "--ready-file", name
        )
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_wrong_settings_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit of what `settings/test_broker_settings.py` and `test_exposure.py` have."""
    (tmp_path / "server.toml").write_text("max_conections = 5")
    (tmp_path / "cut.toml").write_text("node_id = ")
    for arguments, variables, named in (
        (("--config", "server.toml"), {}, "max_conections"),
        (("--config", "cut.toml"), {}, "cut.toml"),
        (("--durability", "fsnyc"), {}, "fsnyc"),
        (("--native", "127.0.0.1:70000"), {}, "127.0.0.1:70000"),
        ((), {"TRIOLOG_MAX_FRAMEBYTES": "5"}, "max_framebytes"),
        (("--kafka", "[::]:0"), {}, "kafka [::]:0: other machines can reach"),
        (("--native", "gateway:0"), {}, "--insecure"),
    ):
        assert named in refused(tmp_path, monkeypatch, "--data-dir", "data", *arguments, **variables)


def test_the_ready_file_holds_the_address_that_accepts_and_the_default_is_fsync(server_folder: ServerFolder) -> None:
    server = server_folder.start()
    address = json.loads(server.ready_file.read_text())
    assert address == {"native": f"{server.address.host}:{server.address.port}"}
    with WireClient.connect(server.address) as client:
        assert client.hello is not None
        assert client.hello.server == "triolog"
        assert set(client.hello.apis) == set(messages.REQUESTS)
        client.create_topic("topic")
        (topic,) = client.call(messages.DescribeConfigsRequest(("topic",))).topics
        assert topic.config["durability"].value == "fsync"


def test_options_win_over_variables_and_variables_over_the_file(server_folder: ServerFolder) -> None:
    config = server_folder.path / "server.toml"
    config.write_text('durability = "group:100"\nmax_in_flight = 7\nmax_frame_bytes = 4096\n[topic_defaults]\n"segment.ms" = 5')
    server = server_folder.start(
        "--config", str(config), "--durability", "os",
        extra_environment={"TRIOLOG_MAX_IN_FLIGHT": "9", "TRIOLOG_DURABILITY": "fsync"},
    )  # fmt: skip
    with WireClient.connect(server.address) as client:
        client.create_topic("topic")
        (topic,) = client.call(messages.DescribeConfigsRequest(("topic",))).topics
        assert client.hello is not None
        assert (client.hello.max_in_flight, client.hello.max_frame_bytes) == (9, 4096)
        assert topic.config["durability"] == messages.ConfigEntry("os", "default")
        assert topic.config["segment.ms"] == messages.ConfigEntry("5", "default")
        assert topic.config["retention.ms"] == messages.ConfigEntry("-1", "topic")


def test_directories_without_an_entry_are_adopted_with_their_configuration(server_folder: ServerFolder) -> None:
    server = server_folder.start()
    with WireClient.connect(server.address) as client:
        client.create_topic("found", 2)
        client.produce("found", 1, batch(value=b"kept"))
    assert server.stop() == 0
    (server_folder.data_dir / "topics.json").unlink()
    config = server_folder.path / "topics.toml"
    config.write_text('[topic.found]\n"segment.bytes" = 12345\n')
    with WireClient.connect(server_folder.start("--topic-config", str(config)).address) as client:
        (topic,) = client.call(messages.DescribeConfigsRequest(("found",))).topics
        assert topic.config["segment.bytes"] == messages.ConfigEntry("12345", "topic")
        (record,), _ = client.read_all("found", 1)
        assert record.value == b"kept"


def test_a_server_tells_of_itself_and_of_its_faults_over_http(server_folder: ServerFolder) -> None:
    rules = server_folder.path / "rules.yaml"
    rules.write_text("disk_faults:\n- {effect: delay, operation: write, delay_ms: 1}\n")
    server = server_folder.start("--metrics", "127.0.0.1:0", "--faults", str(rules))
    address = json.loads(server.ready_file.read_text())["metrics"]
    with WireClient.connect(server.address) as client:
        client.create_topic("t", 1)
        client.produce("t", 0, (messages.PlainRecord(None, None, b"v"),))
    with urllib.request.urlopen(f"http://{address}/readyz", timeout=30) as answer:
        assert answer.read() == b"ready\n"
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        lines = answer.read().decode().splitlines()
    assert [line for line in lines if line.startswith("triolog_directory_in_service{")]
    assert [line for line in lines if line.startswith("process_resident_memory_bytes ")]
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert counted['triolog_connections_accepted_total{protocol="native"}'] == "1.0"
    assert counted['triolog_request_seconds_count{api="produce",protocol="native"}'] == "1.0"
    (fired,) = [line for line in lines if line.startswith('triolog_faults_fired_total{rule="disk-1"}')]
    assert float(fired.split()[-1]) > 0
    assert server.stop() == 0


@pytest.mark.merge
def test_without_the_extra_it_is_said_how_to_get_it(server_folder: ServerFolder) -> None:
    hidden = "import importlib.util as u; real = u.find_spec; u.find_spec = lambda n, *a: None if n == 'h11' else real(n, *a)"
    command = [*python_command(hidden), "serve", "--data-dir", str(server_folder.data_dir), "--metrics", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 2
    assert f"--metrics needs h11: {how_to_install('metrics')}" in done.stderr


@pytest.mark.merge
def test_without_the_option_nothing_of_the_extra_is_loaded() -> None:
    loaded = "import sys, triolog.server.app; print([n for n in ('h11', 'prometheus_client') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


FAST = {"TRIOLOG_CHECKPOINT_INTERVAL_MS": "100"}


def vanish(directory: Path) -> None:
    """At once, as a device does: while files were deleted one by one, a checkpoint would be written among them."""
    directory.rename(directory.with_suffix(".gone"))


def test_a_directory_that_vanishes_is_left_out_and_the_last_ends_the_server(
    tmp_path: Path, server_forker: ServerForker
) -> None:
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("left", "right")) as folder:
        server = folder.start(extra_environment=FAST)
        with WireClient.connect(server.address) as client:
            client.create_topic("two", 2)
            client.produce("two", 0, batch())
            client.produce("two", 1, batch())
            vanish(tmp_path / "right")
            server.wait_stderr("right is out of service")
            error = error_of(client.produce, "two", 1, batch())
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce("two", 0, batch()) == 1
            vanish(tmp_path / "left")
            assert server.wait_exit() == CANNOT_SERVE
        assert "level=critical" in server.stderr()
        assert "no log directory can be used" in server.stderr()


def test_a_server_starts_without_an_unusable_directory_and_not_without_any(tmp_path: Path, server_forker: ServerForker) -> None:
    (tmp_path / "file").touch()
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("file/data", "data")) as folder:
        server = folder.start()
        with WireClient.connect(server.address) as client:
            client.create_topic("one", 1)
            assert client.produce("one", 0, batch()) == 0
        assert server.stop() == 0
        assert "file/data is out of service" in server.stderr()
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("file/data",)) as folder:
        refused = folder.spawn()
        assert refused.wait_exit() == CANNOT_SERVE
        assert "no log directory can be used" in refused.stderr()


def test_sigterm_marks_the_directory_clean_and_nothing_is_scanned_afterwards(server_folder: ServerFolder) -> None:
    server = server_folder.start()
    with WireClient.connect(server.address) as client:
        client.create_topic("topic", 1, {"segment.bytes": "4096", "index.interval.bytes": "0"})
        for _ in range(50):
            client.produce("topic", 0, batch(value=b"v" * 500))
    assert server.stop() == 0
    assert (server_folder.data_dir / CLEAN_SHUTDOWN_FILE).exists()
    log = server_folder.data_dir / "topic-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)  # a scan would cut the log here
    server = server_folder.start("--log-level", "debug")
    assert not (server_folder.data_dir / CLEAN_SHUTDOWN_FILE).exists()
    with WireClient.connect(server.address) as client:
        assert client.high_watermark("topic") == 50
    server.kill()
    assert "cut off" not in server.stderr()


def test_sigterm_answers_every_append_that_was_taken(server_folder: ServerFolder) -> None:
    server = server_folder.start()
    with WireClient.connect(server.address) as client:
        client.create_topic("topic")
        data = batch(value=b"v" * 1000)
        sent = [client.send(messages.ProduceRequest((messages.ProducePartition("topic", 0, data),))) for _ in range(64)]
        server.terminate()
        answered = 0
        while (event := client.receive()) is not CONNECTION_CLOSED:
            assert isinstance(event, Response)
            assert event.error is None
            assert event.correlation_id == sent[answered]
            (entry,) = messages.ProduceResponse.from_body(event.body).partitions  # type: ignore[arg-type]
            assert (entry.error, entry.base_offset) == (None, answered)
            answered += 1
    assert server.wait_exit() == 0
    with WireClient.connect(server_folder.start().address) as client:
        assert client.high_watermark("topic") == answered


def test_sigterm_ends_long_polls_with_what_is_there_and_idle_connections_do_not_hold_it_up(server_folder: ServerFolder) -> None:
    server = server_folder.start("--config", str(config_with(server_folder, stop_grace_ms=600_000)))
    with WireClient.connect(server.address) as client, WireClient.connect(server.address, say_hello=False):
        client.create_topic("topic")
        poll = client.send(messages.FetchRequest((messages.FetchPartition("topic", 0, 0),), max_wait_ms=600_000))
        client.high_watermark("topic")  # answered behind the fetch: the server waits in it now
        server.terminate()
        entry = client.receive_message(poll).partitions[0]  # type: ignore[union-attr]
        assert (entry.error, entry.records) == (None, b"")
        assert client.is_closed_by_server()
        assert server.wait_exit() == 0
    assert (server_folder.data_dir / CLEAN_SHUTDOWN_FILE).exists()


def test_a_second_sigterm_ends_the_grace_of_a_peer_that_does_not_read(server_folder: ServerFolder) -> None:
    server = server_folder.start("--config", str(config_with(server_folder, stop_grace_ms=600_000)))
    with WireClient.connect(server.address, receive_buffer_bytes=4096) as client:
        client.create_topic("topic")
        for _ in range(16):
            client.produce("topic", 0, batch(value=b"v" * 1_000_000))
        for _ in range(8):
            client.send(messages.FetchRequest((messages.FetchPartition("topic", 0, 0, 10_000_000),)))
        with WireClient.connect(server.address) as other:
            other.high_watermark("topic")
        server.terminate()
        server.wait_stderr("stopping")
        assert server.process.poll() is None
        server.terminate()
        assert server.wait_exit() == 0
    assert (server_folder.data_dir / CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs the GNU C library")
def test_the_threads_of_a_server_have_no_arenas_of_their_own(tmp_path: Path) -> None:
    """Each would keep what its busiest moment took, half a MiB. Most of the 64 MiB of addresses of an arena have no rights."""
    with ServerFolder(tmp_path) as folder:
        server = folder.start()
        with WireClient.connect(server.address) as client:
            client.create_topic("topic")
            for number in range(20):
                client.produce("topic", 0, batch(value=b"%d" % number))
        maps = [line.split() for line in Path(f"/proc/{server.pid}/maps").read_text().splitlines()]
        assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) > 1, "none works beside the first thread"
    unused = [addresses for addresses, rights, *_ in maps if rights == "---p"]
    assert max(size_of(each) for each in unused) < 1_000_000


def size_of(addresses: str) -> int:
    first, behind = addresses.split("-")
    return int(behind, 16) - int(first, 16)


def test_an_insecure_listener_is_said_to_be_that_once(server_folder: ServerFolder) -> None:
    server = server_folder.start("--kafka", "0.0.0.0:0", "--metrics", "127.0.0.1:0", "--insecure")
    address = json.loads(server.ready_file.read_text())["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        assert 'triolog_insecure_listener{listener="kafka"} 1.0' in answer.read().decode()
    with WireClient.connect(server.address) as client:
        assert client.call(messages.StatisticsRequest()).statistics["insecure"] == ["kafka"]
    assert server.stop() == 0
    [line] = [line for line in server.stderr().splitlines() if "insecure listeners=" in line]
    assert "level=warning" in line
    assert "listeners=kafka:" in line


def test_json_log_lines_are_objects(server_folder: ServerFolder) -> None:
    server = server_folder.start("--log-format", "json")
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    assert [line["level"] for line in lines] == ["info"] * len(lines)
    assert any(f"native={server.address.host}:{server.address.port}" in line["message"] for line in lines)


def config_with(folder: ServerFolder, **keys: int) -> Path:
    path = folder.path / "server.toml"
    path.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
    return path


LINUX_CALLS: Final = [name for name in ("RWF_NOWAIT", "fdatasync") if hasattr(os, name)]
WITHOUT: Final = f"import os\nfor name in {LINUX_CALLS}: delattr(os, name)"


@pytest.mark.merge
@pytest.mark.parametrize("durability", ["fsync", "group:5", "os"])
def test_a_system_without_nowait_reads_and_fdatasync_serves_and_recovers(tmp_path: Path, durability: str) -> None:
    with ServerFolder(tmp_path, command=python_command(WITHOUT)) as folder:
        server = folder.start("--durability", durability)
        with WireClient.connect(server.address) as client:
            client.create_topic("topic", 2, {"segment.bytes": "4096", "index.interval.bytes": "0"})
            for number in range(60):
                client.produce("topic", number % 2, batch(START_MS + number, START_MS + number - 5, value=b"v" * 200))
            before = [client.read_all("topic", partition) for partition in range(2)]
        server.kill()
        server = folder.start("--durability", durability)
        with WireClient.connect(server.address) as client:
            for partition, (records, high_watermark) in enumerate(before):
                assert (client.read_all("topic", partition)) == (records, high_watermark)
                assert high_watermark == 60
                for timestamp in (0, START_MS + 17, START_MS + 59, START_MS + 100):
                    assert client.offset_for_time("topic", partition, timestamp) == scan_for_timestamp(records, timestamp)
                assert client.offset_for_time("topic", partition, LATEST_TIMESTAMP)[1] == 60
                assert client.produce("topic", partition, batch()) == 60
        assert server.stop() == 0
