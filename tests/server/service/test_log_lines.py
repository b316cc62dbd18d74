"""How many log lines of a kind go through, and what is said of the others. Files of users and certificates are read again when
they change, once they are whole, and nobody who is there notices. How far a start is, as a supervisor is told. The rest is
said by real servers: `tests/server/test_supervised_process.py`. What the server as a process says on the way."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.protocol.native import messages
from triolog.server.app import LINE_S, StartLines
from triolog.server.broker import Broker, StartProgress
from triolog.server.config.broker_config import Address, BrokerConfig
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.config.values import DEFAULT_LINES_PER_MINUTE, LogLevel
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.service.log_lines import CHARS_PER_LINE, MAX_KINDS, MINUTE_S, LineLimit, LogLines, configure_logging
from triolog.server.service.service import EXTENSION_S, LEAST_S, Change, Starting, WatchedFiles, security_part, tls_part
from triolog.server.system.supervisor import Supervisor

from tests.support import brokers, kafka_stream, native_stream
from tests.support.certificates import HOST, Certificates, make_certificates

LOGGER = logging.getLogger("planted")


@attrs.define(eq=False)
class Lines:
    """A limit of two lines a minute, at a time that the test moves."""

    now_s: float = 0.0
    limit: LineLimit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = LineLimit(2, now_s=lambda: self.now_s)

    def passed(self, count: int, text: str = "%d came", level: int = logging.WARNING, error: Exception | None = None) -> int:
        """How many of `count` lines go through."""
        info = None if error is None else (type(error), error, error.__traceback__)
        records = [logging.LogRecord("planted", level, "", 0, text, (number,), info) for number in range(count)]
        return sum(self.limit.passes(record) for record in records)

    def said(self, *, at_once: bool = False) -> list[str]:
        return [record.getMessage() for record in self.limit.over(at_once=at_once)]


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_of_each_kind_so_many_go_through_in_a_minute(lines: Lines) -> None:
    assert lines.passed(5) == 2
    assert lines.passed(5, "%d went") == 2
    assert lines.passed(5, level=logging.INFO) == 2
    assert lines.said() == []
    lines.now_s = MINUTE_S
    assert lines.said() == [
        "3 lines of this kind were left out within a minute: %d came",
        "3 lines of this kind were left out within a minute: %d went",
        "3 lines of this kind were left out within a minute: %d came",
    ]
    assert lines.said() == []
    assert lines.passed(5) == 2


def test_a_minute_in_which_all_went_through_is_not_spoken_of(lines: Lines) -> None:
    lines.passed(2)
    lines.now_s = MINUTE_S
    assert lines.said() == []


def test_requested_and_critical_lines_go_through_and_all_without_a_limit(lines: Lines) -> None:
    assert lines.passed(5, level=logging.DEBUG) == 5
    assert lines.passed(5, level=logging.CRITICAL) == 5
    lines.limit.per_minute = 0
    assert lines.passed(500) == 500


def raised(place: int) -> Exception:
    try:
        if place == 1:
            raise ValueError(1)
        raise ValueError(2)
    except ValueError as exc:
        return exc


def test_an_error_from_another_place_is_another_kind(lines: Lines) -> None:
    assert lines.passed(5, level=logging.ERROR, error=raised(1)) == 2
    assert lines.passed(5, level=logging.ERROR, error=raised(2)) == 2
    assert lines.passed(5, level=logging.ERROR, error=ExceptionGroup("a nursery's", [raised(1)])) == 0
    assert lines.passed(5, level=logging.ERROR) == 2


def test_texts_with_values_in_them_do_not_take_memory_without_end(lines: Lines) -> None:
    passed = sum(lines.passed(1, f"{number} %d") for number in range(2 * MAX_KINDS))
    assert passed == MAX_KINDS + 2
    assert len(lines.said(at_once=True)) == 1


@pytest.fixture
def configured() -> Iterator[LogLines]:
    """The process's log."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield configure_logging("info", as_json=False)
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_what_was_left_out_is_said_before_the_next_line_or_at_the_end(
    configured: LogLines, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configured.set(BrokerConfig(data_dirs=("data",), log_level=LogLevel.WARNING, log_lines_per_minute=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(configured.tell_regularly)
        for number in range(4):
            LOGGER.info("not of interest %d", number)
            LOGGER.warning("again %d", number)
        await trio.sleep(3 * MINUTE_S)
        nursery.cancel_scope.cancel()
    assert [line.partition("message=")[2] for line in written.getvalue().splitlines()] == [
        '"again 0"',
        '"3 lines of this kind were left out within a minute: again %d"',
    ]


def test_log_lines_follow_standard_error_when_it_is_replaced(configured: LogLines, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = io.StringIO()
    monkeypatch.setattr(sys, "stderr", taken)
    LOGGER.info("between two drawings")
    assert 'message="between two drawings"' in taken.getvalue()


@pytest.mark.parametrize("as_text", [True, False], ids=["value", "text"])
def test_long_names_do_not_fill_the_disk(configured: LogLines, monkeypatch: pytest.MonkeyPatch, as_text: bool) -> None:
    """Also in a text that is an error's."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    name = "u" * 20_000
    for _ in range(2 * DEFAULT_LINES_PER_MINUTE):
        LOGGER.warning("login failed: %s as %r: %s", "peer", name if as_text else ValueError(name), "wrong password")
    lines = written.getvalue().splitlines()
    assert 1 < len(lines) < DEFAULT_LINES_PER_MINUTE
    assert len(written.getvalue()) < 2 * CHARS_PER_LINE * DEFAULT_LINES_PER_MINUTE
    if as_text:
        assert "wrong password" in lines[0]


def test_a_long_line_counts_as_several(lines: Lines) -> None:
    lines.limit.per_minute = 10
    assert lines.passed(20, "x" * (2 * CHARS_PER_LINE) + " %d") == 4
    lines.now_s = MINUTE_S
    [said] = lines.said()
    assert said.startswith("16 lines of this kind were left out")


LOOK_S = 0.005


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator[tuple[Broker, Path]]:
    users = path / "users.toml"
    users.write_text('[alice]\npassword = "old"\n')
    keys = {"sasl_users_file": str(users), "audit_file": str(path / "audit")}
    async with brokers.running_broker(path / "data", **keys) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(WatchedFiles(broker, [partial(security_part, broker)], LOOK_S).run)
        yield broker, users
        nursery.cancel_scope.cancel()


async def test_a_file_that_is_written_anew_or_replaced_is_read(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, users):
        users.write_text('[alice]\npassword = "newer"\n')
        await brokers.until(lambda: broker.security.is_password("alice", "newer"))
        assert not broker.security.is_password("alice", "old")
        other = tmp_path / "other"
        other.write_text('[bob]\npassword = "b"\n')
        other.replace(users)
        await brokers.until(lambda: broker.security.is_password("bob", "b"))
    noted = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [each["changed"] for each in noted] == [["passwords of users: alice"], ["users added: bob", "users removed: alice"]]


async def test_what_cannot_be_read_is_said_once_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def errors() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]

    async with watched(tmp_path) as (broker, users):
        users.write_text("[alice\n")
        await brokers.until(lambda: bool(errors()))
        users.unlink()
        await brokers.until(lambda: len(errors()) == 2)
        assert broker.security.is_password("alice", "old")
        users.write_text('[alice]\npassword = "newest"\n')
        await brokers.until(lambda: broker.security.is_password("alice", "newest"))
    assert ["is not TOML" in each for each in errors()] == [True, False]


async def test_a_changed_certificate_is_shown_to_new_connections_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On both doors; a certificate of which only a part is there is not taken."""
    before, after = (make_certificates(tmp_path / name) for name in ("before", "after"))
    file = tmp_path / "server.pem"
    shutil.copy(before.server, file)
    keys: dict[str, Any] = dict.fromkeys(("native_security", "kafka_security"), ListenerSecurity.SSL)
    keys |= {"ssl_certificate_file": str(file), "audit_file": str(tmp_path / "audit")}
    async with brokers.running_broker(tmp_path / "data", **keys) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        doors = await listeners.start(nursery, Addresses(Address(HOST, 0), Address(HOST, 0)))
        nursery.start_soon(WatchedFiles(broker, [partial(tls_part, broker, listeners)], LOOK_S).run)
        async with shaken(doors.native, before) as native, shaken(doors.kafka, before) as kafka:
            old = native_stream.NativeStream(native), kafka_stream.KafkaStream(kafka)
            await old[0].call(messages.HelloRequest("old"))
            file.write_bytes(Path(after.server).read_bytes()[:100])
            await brokers.until(lambda: "ssl_certificate_file" in caplog.text)
            async with shaken(doors.kafka, before) as another:
                assert another.getpeercert() == kafka.getpeercert()
            shutil.copy(after.server, file)
            await brokers.until(lambda: b"the content of" in (tmp_path / "audit").read_bytes())
            for address in (doors.native, doors.kafka):
                async with shaken(address, after) as new:
                    assert new.getpeercert() not in (native.getpeercert(), kafka.getpeercert())
                with pytest.raises(trio.BrokenResourceError):
                    async with shaken(address, before):
                        """It trusts another authority."""
            assert (await old[0].call(messages.MetadataRequest(()))).topics == ()
            assert (await old[1].call(MetadataRequest(topics=[]), 9)).topics == []
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def shaken(address: Address | None, certificates: Certificates) -> AsyncIterator[Any]:
    """A connection whose handshake is done, by a client that trusts these."""
    assert address is not None
    context = certificates.client_context()
    stream = trio.SSLStream(await trio.open_tcp_stream(*address), context, server_hostname=HOST, https_compatible=True)
    try:
        await stream.do_handshake()
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def test_a_file_that_only_looks_changed_is_no_change(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, users):
        os.utime(users, ns=(1, 1))
        users.with_name("done").touch()
        looks = 0

        def has_looked() -> bool:
            nonlocal looks
            looks += 1
            return looks > 50

        await brokers.until(has_looked)
        assert broker.security.is_password("alice", "old")
    assert (tmp_path / "audit").read_text() == ""


async def test_files_unread_for_want_of_descriptors_are_read_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lacking, tried = True, 0

    async def part(config: BrokerConfig) -> Change:
        nonlocal tried
        tried += 1
        await trio.lowlevel.checkpoint()
        if lacking:
            raise InvalidConfigError("cannot read a TLS file") from OSError(errno.EMFILE, "Too many open files")
        return Change(("read",))

    users = tmp_path / "users.toml"
    users.write_text('[alice]\npassword = "a"\n')
    keys = {"sasl_users_file": str(users), "audit_file": str(tmp_path / "audit")}
    async with brokers.running_broker(tmp_path / "data", **keys) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(WatchedFiles(broker, [part], LOOK_S).run)
        await brokers.until(lambda: tried > 3)
        lacking = False
        await brokers.until(lambda: "file changed, read again" in caplog.text or b"read" in (tmp_path / "audit").read_bytes())
        nursery.cancel_scope.cancel()
    assert "not loaded" not in caplog.text


@attrs.define(eq=False)
class Listening(Supervisor):
    """Keeps what it is told, as long as it takes anything."""

    told: list[tuple[str, ...]] = attrs.field(factory=list)
    takes: bool = True

    def tell(self, *lines: str) -> bool:
        if self.takes:
            self.told.append(lines)
        return self.takes


def at(done: int) -> StartProgress:
    return StartProgress(logs=10, logs_done=done, scan_bytes=1, scanned_bytes=0)


def test_only_a_start_that_comes_further_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    supervisor, passed_on = Listening(), list[StartProgress]()
    starting = Starting(supervisor, passed_on.append)
    reports = [at(1), at(1), at(2), at(2), at(2), at(10)]
    for report in reports:
        starting(report)
        now += LEAST_S
    more = f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}"
    assert supervisor.told == [(f"STATUS=recovering {done} of 10 logs", more) for done in (1, 2, 10)]
    assert passed_on == reports


def test_progress_that_was_not_taken_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    supervisor = Listening(takes=False)
    starting = Starting(supervisor, lambda progress: None)
    starting(at(1))
    supervisor.takes = True
    starting(at(1))
    starting(at(2))
    assert [status for status, _ in supervisor.told] == ["STATUS=recovering 1 of 10 logs"]


def progress_at(scanned_bytes: int) -> StartProgress:
    return StartProgress(logs=10, logs_done=2, scan_bytes=100_000_000, scanned_bytes=scanned_bytes)


def test_a_long_start_says_its_progress_regularly(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = StartLines(begin_s=now, said_s=now)
    with caplog.at_level(logging.INFO):
        for tenths in range(round(LINE_S * 20) + 1):
            now = 1000.0 + tenths / 10
            lines(progress_at(tenths * 500_000))
    assert [record.getMessage() for record in caplog.records] == [
        "recovering logs=2/10 scanned_mb=25/100 mb_s=5.0 left_s=15",
        "recovering logs=2/10 scanned_mb=50/100 mb_s=5.0 left_s=10",
    ]
