"""Text and files of others: every command against a hostile server and hostile directories, with lines for people."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import triolog
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.server.service.log_lines import LogLineFormatter
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.filesystem import OsFileSystem, replace_file
from triolog.tools.cli import main as main_module
from triolog.tools.cli.main import main
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.config import ClientConfig

from tests.support.brokers import running_broker
from tests.support.stopped_logs import StoppedLogs
from tests.tools.cli.conftest import Cli, call

EVIL: Final = "x\x1b]0;PWN\x07\u009b31mA\nPWNLINE\rPWNCR\x7f\x08\u202ePWN\u2028y\tz"
"""Escape sequences with 7 and 8 bits, line breaks of every kind, and letters that turn the line around."""
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]|^PWNLINE", re.MULTILINE)

ON_SERVER: Final = (
    ("topics", "list"),
    ("topics", "describe", "t"),
    ("topics", "segments", "t"),
    ("topics", "create", EVIL),
    ("topics", "delete", EVIL, "--yes"),
    ("topics", "alter", EVIL, "retention.ms=1"),
    ("topics", "add-partitions", EVIL, "5"),
    ("topics", "trim", EVIL, "--before", "latest", "--yes"),
    ("produce", EVIL),
    ("produce", "t", "--format", "json"),
    ("consume", "t"),
    ("consume", "t", "--json"),
    ("consume", EVIL),
    ("sql", "select * from j"),
    ("sql", "select * from t"),
    ("sql", "select * from j", "--explain"),
    ("sql", "select * from j", "--format", "json"),
    ("sql", "select nope from j"),
    ("sql", f"select * from '{EVIL}'"),
    ("offsets", "t", "--at", "latest"),
    ("offsets", EVIL, "--at", "latest"),
    ("groups", "list"),
    ("groups", "describe", EVIL),
    ("groups", "members", EVIL),
    ("groups", "reset", EVIL, "t", "--to", "earliest"),
    ("groups", "delete", EVIL),
    ("transactions", "list"),
    ("transactions", "describe", EVIL),
    ("transactions", "producers", "t"),
    ("transactions", "abort", EVIL),
    ("connections",),
    ("quotas", "list"),
    ("quotas", "set", "--client-id", EVIL, "producer_byte_rate=5"),
    ("quotas", "remove", "--client-id", EVIL, "producer_byte_rate"),
    ("top", "--once"),
    ("status",),
    ("users", "list"),
    ("users", "add", EVIL),
    ("users", "remove", EVIL),
    ("acls", "list"),
    ("acls", "add", EVIL, "--topic", EVIL),
    ("acls", "remove", EVIL, "-y"),
    ("explain", "t", "--offset", "0"),
    ("explain", EVIL, "--offset", "0"),
    ("gaps", "list"),
    ("gaps", "accept", EVIL, "0", "0"),
)
IN_DIRECTORY: Final = (
    ("verify",),
    ("doctor", "--output", "report.zip"),
    ("repair", "--dry-run"),
    ("repair",),
    ("du",),
    ("du", "--by", "segment"),
    ("reindex",),
    ("compact", "--topic", "flights", "--force"),
    ("compact", "--topic", EVIL),
    ("export",),
    ("gaps", "list", "--data-dir"),
    ("dump",),
    ("dump", "--records"),
    ("sql", "select * from flights", "--data-dir"),
)
NOT_WALKED: Final = {
    "serve": "log lines are quoted, see the tests of log_lines",
    "bench": "prints what it measures",
    "bench-kafka": "prints what it measures",
    "demo": "prints its own data",
    "edge-demo": "prints its own data",
    "damage-demo": "prints its own data",
    "spark": "prints with the same functions, needs Java",
    "console": "answers a browser; names its own address",
    "completion": "prints a script",
    "version": "prints a constant",
    "config": "prints the configuration that it was given",
    "backup": "names what it was given",
    "export-kafka": "names what it was given",
    "forward": "names links of the configuration",
    "ingest": "names links of the configuration",
    "mirror": "names links of the configuration, and errors of the source through `printable`",
    "promote": "names links of the configuration",
    "demote": "names what it was given",
}


def _leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group) or (path and path[0] in NOT_WALKED):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if path or name not in NOT_WALKED:
            child = command.get_command(context, name)
            assert child is not None
            yield from _leaves(child, (*path, name))


def test_every_command_is_walked() -> None:
    walked = {each[: len(leaf)] for each in (*ON_SERVER, *IN_DIRECTORY) for leaf in [each[:2], each[:1]]}
    assert [leaf for leaf in _leaves(main) if leaf not in walked] == []


def test_everything_leaves_through_the_module_that_escapes() -> None:
    printing = re.compile(r"click\.s?echo\(|(?<!\w\.)(?<!def )\bprint\(|sys\.std(out|err)\.(write|buffer)|\bConsole\(")
    folder = Path(main_module.__file__).parent
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if printing.search(path.read_text())}
    found -= {"completion.py"}  # it prints what it is made of
    found -= {"serve.py"}  # it names a program that prints
    assert found == {"terminal/output.py", "terminal/progress.py"}


def test_a_log_line_without_spaces_is_quoted_too() -> None:
    record = logging.LogRecord("name", logging.INFO, "", 0, "%s", ("x\x1b]0;PWN\x07\u009b31m",), None)
    line = LogLineFormatter(as_json=False).format(record)
    assert not CONTROL.search(line)
    assert "PWN" in line


@pytest.fixture
def hostile() -> Iterator[Cli]:
    """A server whose clients have chosen all they can choose."""
    with triolog.blocking.open(config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        address = broker.native.host, broker.native.port
        with BlockingClient(address, ClientConfig(client_id=EVIL)) as client:
            _fill(client)
            yield Cli(broker)


def _fill(client: BlockingClient) -> None:
    client.call(m.CreateTopicsRequest((m.NewTopic("t", 1), m.NewTopic("j", 1))))
    evil = EVIL.encode()
    plain = build_batch([(0, evil, evil, ((EVIL, evil),)), (0, b"\xff" + evil, b"\xff" + evil, ())])
    json_value = json.dumps({EVIL: 1, "y": EVIL, "n": {EVIL: [EVIL]}}).encode()
    for topic, batch in (("t", plain), ("j", build_batch([(0, b"k", json_value, ())] * 3))):
        client.call(m.ProduceRequest((m.ProducePartition(topic, 0, batch),)))
    client.call(m.CommitOffsetsRequest(EVIL, (m.CommittedPartition("t", 0, 0, EVIL),)))
    client.call(m.InitProducerRequest(EVIL))
    entity = (m.QuotaPart("client-id", EVIL), m.QuotaPart("user", EVIL))
    client.call(m.AlterQuotasRequest((m.Quota(entity, (m.QuotaValue("producer_byte_rate", 1e9),)),)))


@pytest.mark.merge
def test_no_command_passes_on_what_clients_of_a_server_have_chosen(hostile: Cli) -> None:
    for command in ON_SERVER:
        variants: list[tuple[str, ...]] = [command]
        if command[0] not in ("produce", "sql", "consume", "top"):
            variants.append((*command, "--json"))
        for each in variants:
            result = hostile.call(*each, stdin=f'{{"{EVIL}": 1}}\n' if each[0] == "produce" else None)
            assert not CONTROL.search(result.output), (each, result.output)
            assert result.output or each[0] == "produce", each
            assert result.exit_code != 2 or EVIL in each, result.output  # a wrong command line would say nothing


@pytest.mark.merge
def test_no_command_passes_on_what_a_directory_says(
    logs: StoppedLogs, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of files and folders, and what is in the files."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    name = EVIL.replace("/", "")
    (logs.path / f"{name}-0").mkdir()
    (logs.path / f"{name}-0" / f"{'0' * 20}.log").write_bytes(b"x" * 100)
    (logs.partition() / name).write_text(EVIL)
    (logs.partition() / f"{'0' * 15}{name[:5]}.log").write_bytes(b"x" * 50)
    for change in range(2):
        if change:
            for small in ("topics.json", "meta.properties", "recovery-point-offset-checkpoint", "security.json"):
                (logs.path / small).write_text(f'{EVIL}={EVIL}\nversion={EVIL}\n"{EVIL}": {EVIL}')
            shutil.rmtree(logs.path / f"{name}-0")
        for command in IN_DIRECTORY:
            result = call(*command, logs.path)
            assert not CONTROL.search(result.output), (command, result.output)
            assert result.output, command
        with zipfile.ZipFile("report.zip") as report:
            for part in report.namelist():
                assert not CONTROL.search(report.read(part).decode()), part
        Path("report.zip").unlink()


ON_TERMINAL: Final = (
    ("sql", "select * from j", "--format", "csv"),
    ("consume", "t", "--format", "raw"),
    ("produce", EVIL),
    ("verify", EVIL),
)


@pytest.mark.merge
@pytest.mark.parametrize("command", ON_TERMINAL, ids=[command[0] for command in ON_TERMINAL])
def test_what_goes_to_a_pipe_as_it_is_is_escaped_on_a_terminal(hostile: Cli, command: tuple[str, ...]) -> None:
    inner, outer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "triolog.tools.cli", *command],
        stdout=outer,
        stderr=outer,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TRIOLOG_SERVER": hostile.address, "TERM": "xterm"},
    )
    os.close(outer)
    seen = b""
    with os.fdopen(inner, "rb", buffering=0) as terminal:
        while piece := _read(terminal):
            seen += piece
    process.wait()
    assert b"PWN" in seen
    for sequence in (b"\x1b]0;PWN", "\u009b31m".encode(), b"\rPWNCR", b"\x08", "\u202e".encode()):
        assert sequence not in seen
    assert command[0] == "consume" or b"\nPWNLINE" not in seen  # raw values are lines as they are


def _read(terminal: Any) -> bytes:
    try:
        data: bytes = terminal.read(65536)
    except OSError:  # Linux: the other side is closed
        return b""
    return data


COMMANDS: Final = (
    "verify {0}",
    "verify {0} --json",
    "repair {0} --dry-run",
    "du {0}",
    "gaps list --data-dir {0}",
    "export {0}",
    "export {0} --target {1}/files",
    "dump {0}",
    "backup {0} {1}/backup",
    "export-kafka {0} {1}/kafka",
    "reindex {0}",
    "compact {0} --topic flights --force",
    "repair {0}",
)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    os.truncate(path, 2**40)


HOSTILE: Final[dict[str, Callable[[Path], None]]] = {
    "pipes": _pipe,
    "directories": _directory,
    "links to themselves": _circle,
    "links to a device": _device,
    "sparse files": _sparse,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_commands_end_with_a_line_whatever_is_in_place_of_files(kind: str, logs: StoppedLogs, tmp_path: Path) -> None:
    """Of each kind of file one is replaced; `call` raises what would be a traceback."""
    logs.path.joinpath("cleaner-offset-checkpoint").touch()
    for name in (
        "topics.json",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".kafka_cleanshutdown",
    ):
        HOSTILE[kind](logs.path / name)
    for path in sorted(logs.partition(1).iterdir()):
        HOSTILE[kind](path)
    for command in COMMANDS:
        result = call(*command.format(logs.path, tmp_path).split())
        assert result.output.strip(), command
        assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_server_says_what_is_no_file_and_serves_the_rest(kind: str, logs: StoppedLogs) -> None:
    for path in sorted(logs.partition(1).iterdir()):
        HOSTILE[kind](path)
    async with running_broker(logs.path) as broker:
        good, bad = broker.topics.describe("flights").partitions
        assert good.error is None
        assert good.high_watermark > 0
        assert bad.error is not None or bad.high_watermark == 0


@pytest.mark.parametrize("victim", ["file", "pipe", "nothing"])
def test_temporary_files_are_not_written_through_links(victim: str, tmp_path: Path) -> None:
    target = tmp_path / "victim"
    if victim == "file":
        target.write_bytes(b"precious")
    elif victim == "pipe":
        os.mkfifo(target)
    (tmp_path / "small.tmp").symlink_to(target)
    replace_file(OsFileSystem(), str(tmp_path / "small"), b"data")
    assert (tmp_path / "small").read_bytes() == b"data"
    assert not (tmp_path / "small").is_symlink()
    assert victim != "file" or target.read_bytes() == b"precious"
    assert victim != "nothing" or not target.exists()


def test_a_new_file_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        OsFileSystem().open(str(tmp_path / "new"), os.O_RDWR | os.O_CREAT)
    assert not (tmp_path / "elsewhere").exists()


STATE_FILES = ["topics.json", "security.json", "groups.json", "client-metrics.json"]
READERS = {
    "verify": (1,),
    "repair --dry-run": (1,),
    "repair": (0, 1),
    "du": (0,),
    "reindex": (0,),
    "compact --topic flights --force": (0,),
    "gaps list --data-dir": (0,),
    "export --topic flights": (0,),
}


BOUNDED_FILES = [*STATE_FILES, "topics-in-creation.json", "meta.properties", "producer-id-block"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        pytest.param(name, command, marks=() if row % len(BOUNDED_FILES) == column else pytest.mark.merge)
        for row, command in enumerate(READERS)
        for column, name in enumerate(BOUNDED_FILES)
    ],
)
def test_a_file_that_is_too_large_is_no_traceback(name: str, command: str, logs: StoppedLogs) -> None:
    path = logs.path / name
    path.touch()
    os.truncate(path, checkpoints.limit_of(name) + 1)  # sparse
    result = call(*command.split(), logs.path)
    assert result.exit_code in READERS[command], result.output
    if (command, name) == ("repair --dry-run", "topics-in-creation.json"):
        assert f"{name}: emptied" in result.output
    elif command in ("verify", "repair --dry-run") or (command == "reindex" and name == "topics.json"):
        assert f"{name} has {checkpoints.limit_of(name) + 1} bytes, at most" in result.output


def test_repair_returns_to_the_copy_from_before_the_last_change(logs: StoppedLogs) -> None:
    path = logs.path / "topics.json"
    good = path.read_bytes()
    path.with_name("topics.json.previous").write_bytes(good)
    path.write_bytes(b"{")
    assert "`triolog repair" in call("verify", logs.path).stdout
    result = call("repair", logs.path)
    assert result.exit_code == 0
    assert "rewrite     topics.json: restored from before the last change" in result.stdout
    assert (path.read_bytes(), path.with_name("topics.json.corrupt-0").read_bytes()) == (good, b"{")
    assert call("verify", logs.path).exit_code == 0


def test_millions_of_lines_in_a_checkpoint_are_one_finding(logs: StoppedLogs) -> None:
    path: Path = logs.path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n3000000\n" + b"flights 0 1\n" * 3_000_000)
    result = call("verify", logs.path)
    assert (result.exit_code, len(result.stdout.splitlines()) < 10) == (1, True)
    assert "has 3000002 lines. A checkpoint has at most 1000000 entries" in result.stdout
