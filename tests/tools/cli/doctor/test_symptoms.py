"""Each symptom is made, and doctor names it; nothing is named where nothing is wrong."""

from __future__ import annotations

import ast
import contextlib
import copy
import logging
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.server.service.log_lines import LogLineFormatter
from triolog.server.storage.directory.clock_file import CLOCK_FILE, ClockState, encode_clock
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, encode_topics
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, encode_offsets
from triolog.tools.cli.doctor import server
from triolog.tools.cli.doctor.directory import Inspection
from triolog.tools.cli.doctor.symptoms import BY_NAME, SYMPTOMS, VALUE, symptom_of
from triolog.tools.cli.terminal.remote import ServerAddress
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from tests.support.certificates import make_certificates
from tests.support.damaged_batches import damage_batch, flip
from tests.support.stopped_logs import TOPIC, TOPIC_ID, StoppedLogs

from ..conftest import call
from .conftest import Doctor

ROOT: Final = Path(triolog.__file__).parent
PARTITION: Final = TopicPartition(TOPIC, 0)


# ---- directories ---------------------------------------------------------------------------------------------------------


def newest_log(logs: StoppedLogs) -> Path:
    return max(logs.partition().glob("*.log"))


def write_topic(logs: StoppedLogs, configs: dict[str, str]) -> None:
    topic = Topic(name=TOPIC, topic_id=TOPIC_ID, partitions=1, configs=configs)
    (logs.path / TOPICS_FILE).write_bytes(encode_topics(2, [topic]))


def truncate_old_segment(logs: StoppedLogs) -> None:
    log = min(logs.partition().glob("*.log"))
    os.truncate(log, log.stat().st_size - 40)


def lose_time_index(logs: StoppedLogs) -> None:
    min(logs.partition().glob("*.timeindex")).unlink()


def lose_derived_segment(logs: StoppedLogs) -> None:
    sorted(logs.partition().glob("*.log"))[2].unlink()


def flip_a_bit(logs: StoppedLogs) -> None:
    flip(min(logs.partition().glob("*.log")), 80)


def lose_the_end(logs: StoppedLogs) -> None:
    (logs.path / RECOVERY_POINT_FILE).write_bytes(encode_offsets({PARTITION: 10**6}))


def have_a_gap(logs: StoppedLogs) -> None:
    flip_a_bit(logs)
    assert call("repair", logs.path).exit_code == 0


def come_from_the_future(logs: StoppedLogs) -> None:
    text = (logs.path / TOPICS_FILE).read_text()
    (logs.path / TOPICS_FILE).write_text(text.replace('"format_version": 1', '"format_version": 2'))


def have_an_unknown_key(logs: StoppedLogs) -> None:
    write_topic(logs, {"retention.ms": "-1", "retentoin.bytes": "1"})


def be_killed(logs: StoppedLogs) -> None:
    (logs.path / CLEAN_SHUTDOWN_FILE).unlink()


def hide_a_file(logs: StoppedLogs) -> None:
    """A link to itself cannot be opened, by root either."""
    path = logs.partition() / "partition.metadata"
    path.unlink()
    path.symlink_to(path.name)


def go_back_to_1970(logs: StoppedLogs) -> None:
    """The files are as old as they are to a clock that has begun again."""
    later = time.time() + 56 * 365 * 86_400
    os.utime(newest_log(logs), (later, later))


def distrust_the_clock(logs: StoppedLogs) -> None:
    (logs.path / CLOCK_FILE).write_bytes(encode_clock(ClockState(generation=1, suspended=(0, 0))))


def fill_the_disk(logs: StoppedLogs) -> None:
    Path("server.toml").write_text(f"disk_reserve_bytes = {2**50}\n")


def misspell_a_key(logs: StoppedLogs) -> None:
    Path("server.toml").write_text("disk_reserve_byte = 1\n")


def lose_records_to_retention(logs: StoppedLogs) -> None:
    shutil.rmtree(logs.path)
    with (
        triolog.blocking.open(logs.path, topics=["t"], native="127.0.0.1:0") as broker,
        BlockingClient(broker.native) as client,
    ):
        broker.append("t", [b"v", b"w"])
        BlockingAdmin(client).delete_records({TopicPartition("t", 0): 1})


DIRECTORY: Final[dict[str, tuple[Callable[[StoppedLogs], None], ...]]] = {
    "damaged": (truncate_old_segment, lose_time_index, lose_derived_segment, flip_a_bit),
    "ends-early": (lose_the_end,),
    "gap": (have_a_gap,),
    "newer-format": (come_from_the_future,),
    "unknown-key": (have_an_unknown_key,),
    "killed": (be_killed,),
    "files-unreadable": (hide_a_file,),
    "clock-implausible": (go_back_to_1970, distrust_the_clock),
    "disk-full": (fill_the_disk,),
    "configuration-wrong": (misspell_a_key,),
    "retention": (lose_records_to_retention,),
}


def test_every_symptom_of_a_directory_is_planted() -> None:
    assert DIRECTORY.keys() == {each.name for each in BY_NAME.values() if each.directory}


@pytest.mark.parametrize(
    ("name", "plant"),
    [(name, plant) for name, plants in DIRECTORY.items() for plant in plants],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_symptom_of_a_directory_is_named_alone(
    here: Path, logs: StoppedLogs, doctor: Doctor, name: str, plant: Callable[[StoppedLogs], None]
) -> None:
    plant(logs)
    options = ["--config", "server.toml"] if Path("server.toml").exists() else []
    report = doctor(logs.path, *options)
    assert report.symptoms == {name}
    [finding] = report.document["findings"]
    assert (finding["reason"], finding["next_step"]) == (BY_NAME[name].cause, BY_NAME[name].next_step)
    assert finding["evidence"]
    assert {each["symptom"] for each in report.document["checks"] if each["result"] == "found"} == {name}


def test_nothing_is_named_in_a_healthy_directory_and_nothing_is_written_there(logs: StoppedLogs, doctor: Doctor) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in logs.path.rglob("*") if path.is_file()}
    report = doctor(logs.path)
    assert (report.exit_code, report.symptoms) == (0, set())
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in logs.path.rglob("*") if path.is_file()} == before
    looked = {each["symptom"] for each in report.document["checks"] if each["result"] == "not found"}
    assert looked == DIRECTORY.keys()


# ---- servers -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "server-data"


def opened(data: Path, **options: Any) -> BlockingBroker:
    return triolog.blocking.open(data, native="127.0.0.1:0", **{"config": {"retention.ms": "-1"}, **options})


def wait_until(broker: BlockingBroker, condition: Callable[[dict[str, Any]], object]) -> None:
    """Ask for statistics until they fulfil the condition: the server notices some things a little later."""
    with BlockingClient(broker.native) as client:
        while not condition(BlockingAdmin(client).statistics()):
            continue


def test_nothing_is_named_at_a_healthy_server_and_its_directory(data: Path, doctor: Doctor) -> None:
    with opened(data, kafka="127.0.0.1:0", topics=["t"]) as broker:
        broker.append("t", [b"v"])
        report = doctor(data, broker.native, broker.kafka)
        assert report.symptoms == set()
        assert report.part("directory-1.json")["shape"]["holder"] == f"triolog, process {os.getpid()}"
        assert report.part("server-2.json")["shape"]["statistics"]["topic_count"] == 1
        assert report.part("server-3.json")["shape"]["advertised"] == [list(broker.kafka)]
        broker.append("t", [b"the lock is still the server's"])


def test_the_directory_of_a_running_server_has_its_damage_named(logs: StoppedLogs, doctor: Doctor) -> None:
    with opened(logs.path):
        lose_time_index(logs)
        assert "damaged" in doctor(logs.path).symptoms


def test_a_server_that_does_not_listen_or_does_not_respond_is_named(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.cli.terminal.remote.CONNECT_TIMEOUT_MS", 300)
    monkeypatch.setattr(server, "CONNECT_S", 0.3)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert doctor("{}:{}".format(*closed.getsockname())).symptoms == {"no-connection"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        report = doctor("{}:{}".format(*silent.getsockname()))
        assert report.symptoms == {"no-connection"}
        assert report.texts.keys() >= {"system.json", "configuration.json", "report.json", "report.txt"}


def test_a_server_from_which_clients_are_sent_away_is_named(data: Path, doctor: Doctor) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*closed.getsockname())
        with opened(data, kafka="127.0.0.1:0", settings={"kafka_advertised": address}) as broker:
            report = doctor(broker.kafka)
    assert report.symptoms == {"advertised-wrong"}
    assert address in report.evidence("advertised-wrong")


def test_a_response_that_comes_byte_by_byte_ends_at_the_deadline() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.send(b"x")
        with pytest.raises(TimeoutError, match="no whole response"):
            server._receive(here, 4, time.monotonic() - 1)


def test_statistics_of_another_version_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "call_server", lambda address, look: {"statistics": {"total": 1}, "hanging": []})
    inspection = server.inspect_server(ServerAddress("127.0.0.1", 1))
    assert "does not know" in inspection.evidence["no-connection"][0]


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a" * 64, 9092), ("a\0b", 9092)])
def test_an_advertised_address_that_cannot_be_one_is_named(host: str, port: int) -> None:
    inspection = Inspection("server", shape={"advertised": [(host, port)]})
    server._check_addresses(inspection)
    assert inspection.evidence.keys() == {"advertised-wrong"}


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(b"HT", id="too short"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="text"),
        pytest.param(struct.pack(">i", 12) + bytes(4) + b"\xff" * 8, id="not metadata"),
        pytest.param(struct.pack(">i", 50) + bytes(20), id="cut off"),
        pytest.param(struct.pack(">i", 16) + bytes(16), id="no brokers"),
    ],
)
def test_a_port_of_another_program_is_named(doctor: Doctor, response: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listening.accept()[0] as connected:
                        if connected.recv(1000)[4:6] == struct.pack(">h", ApiKey.METADATA):
                            connected.sendall(response)

        threading.Thread(target=serve, daemon=True).start()
        assert doctor("{}:{}".format(*listening.getsockname())).symptoms == {"no-connection"}
        listening.shutdown(socket.SHUT_RDWR)


SECURED: Final = {"native_security": "sasl_plaintext", "acl_enable": "true", "super_users": "User:root"}
AS_ROOT: Final = {"TRIOLOG_USER": "root", "TRIOLOG_PASSWORD": "secret of root"}


def test_refused_logins_and_denials_are_named(doctor: Doctor) -> None:
    security = {**SECURED, "connection_failed_authentication_delay_ms": "1"}
    users = {"root": AS_ROOT["TRIOLOG_PASSWORD"], "alice": "secret of alice"}
    with triolog.blocking.open(users=users, security=security, native="127.0.0.1:0") as broker:
        assert doctor(broker.native, env=AS_ROOT).symptoms == set()
        refused = doctor(broker.native, env={**AS_ROOT, "TRIOLOG_PASSWORD": "wrong"})
        assert refused.symptoms == {"login-failed"}
        assert doctor(broker.native, env=AS_ROOT).symptoms == {"login-failed"}, "of another client, before"
        denied = doctor(broker.native, env={"TRIOLOG_USER": "alice", "TRIOLOG_PASSWORD": "secret of alice"})
        assert denied.symptoms == {"denied"}
        assert doctor(broker.native, env=AS_ROOT).symptoms == {"login-failed", "denied"}


def test_a_client_that_does_not_trust_the_certificate_is_named(data: Path, tmp_path: Path, doctor: Doctor) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    keys = {"kafka_security": "ssl", "ssl_certificate_file": certificates.server}
    with opened(data, kafka="127.0.0.1:0", settings=keys) as broker:
        context = certificates.client_context(ca=certificates.other_ca)
        with socket.create_connection(broker.kafka) as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="127.0.0.1")
        wait_until(broker, lambda now: now["security"]["failed_handshakes"])
        assert doctor(broker.native).symptoms == {"tls-failed"}


def test_a_full_disk_is_named(data: Path, doctor: Doctor) -> None:
    with opened(data, settings={"disk_reserve_bytes": 2**49}) as broker:
        wait_until(broker, lambda now: now["directories"][0]["is_refusing"])
        assert doctor(broker.native).symptoms == {"disk-full"}


def test_a_gap_that_a_start_has_made_is_named_until_it_is_accepted(data: Path, doctor: Doctor) -> None:
    with opened(data, topics=["t"]) as broker:
        for value in (b"a", b"b", b"c"):
            broker.append("t", [value])
    damage_batch(data, "t-0", 1)
    with opened(data) as broker:
        assert doctor(data, broker.native).symptoms == {"gap"}
        with BlockingClient(broker.native) as client:
            BlockingAdmin(client).accept_gap(TopicPartition("t", 0), 1)
        assert doctor(data, broker.native).symptoms == set()


def test_a_hanging_transaction_is_named_and_one_of_a_live_producer_is_not(data: Path, doctor: Doctor) -> None:
    def batch(**producer: int) -> bytes:
        return build_batch([(1, None, b"v", ())], base_sequence=0, is_transactional=True, **producer)

    with opened(data, topics=["t"]) as broker, BlockingClient(broker.native) as client:
        made = client.call(m.InitProducerRequest("mover"))
        own = batch(producer_id=made.producer_id, producer_epoch=made.producer_epoch)
        client.call(m.ProduceRequest((m.ProducePartition("t", 0, own),), transactional_id="mover"))
        assert doctor(broker.native).symptoms == set()
        broker.append("t", batch(producer_id=77_000, producer_epoch=4))
        report = doctor(broker.native)
    assert report.symptoms == {"transaction-hangs"}
    assert report.evidence("transaction-hangs") == "t-0: producer 77000, open from offset 1"


def test_a_group_that_lags_is_named(data: Path, doctor: Doctor) -> None:
    with opened(data, topics=["t"]) as broker, BlockingClient(broker.native) as client:
        broker.append("t", [b"v"] * server.LAG_RECORDS)
        for offset, expected in ((1, set()), (0, {"lag"})):
            BlockingAdmin(client).commit_group_offsets("g", {TopicPartition("t", 0): offset})
            assert doctor(broker.native).symptoms == expected


STATISTICS: Final[dict[str, tuple[str, Any]]] = {
    "damaged": ("scrub.damages", 1),
    "bug": ("protocols.native.bugs", 1),
    "segments-dropped": ("log_bound.given_up_segments", 3),
    "retention": ("retention.taken_segments", 2),
    "out-of-service": ("directories.0.error", "Input/output error"),
    "clock-implausible": ("clock", {"is_trusted": False, "is_plausible": False}),
    "clock-jumped": ("clock", {"is_trusted": False, "is_plausible": True}),
}
"""Symptoms that need a broken machine or hours: the counter that a server then has."""
OF_SERVERS: Final = (
    *("no-connection", "kafka-port", "advertised-wrong", "login-failed", "denied", "tls-failed", "disk-full", "gap"),
    *("transaction-hangs", "lag"),
)


def test_every_symptom_of_a_server_is_planted() -> None:
    assert {*STATISTICS, *OF_SERVERS} == {each.name for each in BY_NAME.values() if each.server}


def test_the_counters_of_statistics_are_named(data: Path) -> None:
    with opened(data) as broker, BlockingClient(broker.native) as client:
        now = BlockingAdmin(client).statistics()
    for name, (path, value) in STATISTICS.items():
        changed = copy.deepcopy(now)
        *above, last = path.split(".")
        place: Any = changed
        for each in above:
            place = place[int(each) if each.isdigit() else each]
        place[last] = value
        inspection = Inspection("server")
        server._check(changed, inspection)
        assert inspection.evidence.keys() == {name}


# ---- log lines -----------------------------------------------------------------------------------------------------------


def shapes(path: Path) -> Iterator[str]:
    """The texts of a module, with dots for values."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-.\d]*[sdrf]", VALUE, node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    paths = [path for folder in ("server", "tools") for path in (ROOT / folder).rglob("*.py")]
    return [shape for path in paths if path.parent.name != "doctor" for shape in shapes(path)]


def written(text: str, *, as_json: bool = False) -> str:
    record = logging.LogRecord("triolog.server.place", logging.WARNING, "", 0, text, (), None)
    return LogLineFormatter(as_json=as_json).format(record) + "\n"


@pytest.mark.merge
@pytest.mark.parametrize("name", [each.name for each in BY_NAME.values() if each.is_line])
def test_each_line_is_a_text_of_the_code_and_is_named_in_both_formats(
    texts: list[str], doctor: Doctor, logs: StoppedLogs, name: str
) -> None:
    symptom = BY_NAME[name]
    shape = min((text for text in texts if symptom.line in text), key=len)
    line = shape.replace(VALUE, 'a "quoted" value')
    assert symptom_of(line) is symptom
    journal = f"Nov 29 16:00:00 host triolog[77]: {written(line)}"
    report = doctor(logs.path, log=journal + written(line, as_json=True) + written("started"))
    assert report.symptoms == {name}
    assert report.evidence(name).startswith("2 lines, the last: ")


def failed(*arguments: object) -> str:
    """Standard error of a command that ends with 3."""
    command = [sys.executable, "-m", "triolog.tools.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    return done.stderr


@pytest.mark.merge
def test_errors_of_commands_are_named(data: Path, logs: StoppedLogs, tmp_path: Path, doctor: Doctor) -> None:
    """A server that does not start, and a command that went to the wrong port."""
    with opened(data, kafka="127.0.0.1:0") as broker:
        for name, text in (
            ("directory-locked", failed("serve", "--data-dir", data)),
            ("port-taken", failed("serve", "--data-dir", tmp_path / "other", "--native", broker.native)),
            ("kafka-port", failed("topics", "list", "-s", broker.kafka)),
        ):
            assert doctor(logs.path, log=text).symptoms == {name}


def test_the_sections_have_each_symptom_once() -> None:
    assert sum(map(len, SYMPTOMS.values())) == len(BY_NAME) >= 20
