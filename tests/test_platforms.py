"""Other systems than Linux, other machines and Pythons: their one line, what works there, and the page with the runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import triolog
from triolog.protocol.platforms import NO_SERVER
from triolog.protocol.records.checksum import SLOW

from tests.support.hidden_names import HIDDEN, SKIPPED, SKIPPED_WITH_PORTABLE
from tests.support.interpreters import interpreter

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")

AS_ON_WINDOWS: Final = """
import asyncio, logging, os, select, selectors, socket, ssl, sys, tempfile, uuid

sys.platform = "win32"
socketpair, AF_UNIX = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda: socketpair(AF_UNIX)
for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fork", "getuid", "preadv", "pwritev", "register_at_fork", "statvfs"),
    select: ("epoll", "poll", "POLLIN", "POLLOUT"),
    socket: ("AF_UNIX",),
}.items():
    for name in names:
        delattr(module, name)
socket.socket.sendmsg = None
"""
CONNECT: Final = """
import triolog
for name in ("triolog", "triolog.blocking", "triolog.server.embedded"):
    try:
        exec(f"from {name} import open")
    except ImportError as exc:
        print(exc)
with triolog.blocking.connect(sys.argv[1]) as client:
    client.create_topic("t", 1)
    print(client.append("t", [b"espresso"]).base_offset)
    print([record.value for record in client.fetch("t")])

async def fetch():
    async with triolog.aio.connect(sys.argv[1]) as client:
        return [record.value for record in await client.fetch("t")]

with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
    print(runner.run(fetch()))
"""


OLD_PYTHONS: Final = ("3.6", "3.7", "3.8", "3.9", "3.10")
WITHOUT_COMPILED: Final = """
import importlib.machinery
finder, find = importlib.machinery.PathFinder, importlib.machinery.PathFinder.find_spec
hidden = {"crc32c", "msgpack._cmsgpack"}
finder.find_spec = lambda name, *more: None if name in hidden else find(name, *more)
import msgpack.fallback, triolog
from triolog.protocol.native import frames
assert frames.msgpack.Packer is msgpack.fallback.Packer
with triolog.blocking.open(topics=["t"], native="127.0.0.1:0") as broker:
    broker.append("t", [bytes(200)])
    with triolog.blocking.connect(broker.native) as client:
        print(client.append("t", [b"espresso" * 100]).base_offset)
        print([len(record.value) for record in client.fetch("t")])
"""
"""As on a machine for which there is no wheel, and no compiler."""


def as_on_windows(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_ON_WINDOWS + program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def test_on_windows_a_broker_is_refused_in_one_sentence_and_the_clients_without_trio_work() -> None:
    with triolog.blocking.open(native="127.0.0.1:0") as broker:
        done = as_on_windows(CONNECT, str(broker.native))
    assert done.stderr == ""
    *refused, offset, values, awaited = done.stdout.splitlines()
    assert refused == [NO_SERVER] * 3
    assert (offset, values, awaited) == ("0", "[b'espresso']", "[b'espresso']")


def test_on_windows_the_command_ends_with_the_same_sentence() -> None:
    done = as_on_windows("import triolog.tools.cli; triolog.tools.cli.run()")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{NO_SERVER}\n")


@pytest.mark.merge
def test_without_a_compiled_package_a_broker_and_a_client_work_and_one_line_says_that_they_are_slow() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILED], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("1\n[200, 800]\n", f"{SLOW}\n")


@pytest.mark.merge
@pytest.mark.parametrize("version", OLD_PYTHONS)
def test_an_older_python_gets_one_line(version: str) -> None:
    if (found := interpreter(version)) is None:
        pytest.skip(f"there is no Python {version} on this machine")
    done = subprocess.run([found, "-c", "import triolog"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stderr.endswith(f"\nImportError: triolog needs Python 3.11 or newer, and this is Python {version}\n")


def test_the_page_lists_every_test_that_hidden_names_skip_and_every_name_that_they_hide() -> None:
    rows = re.findall(r"^\| `(tests/[^`]+)` \| (.+) \|$", PAGE, flags=re.MULTILINE)
    skipped = SKIPPED | SKIPPED_WITH_PORTABLE
    assert dict(rows) == skipped
    for start in skipped:
        path, _, name = start.partition("::")
        source = "".join(each.read_text(encoding="utf-8") for each in ROOT.glob(path if path.endswith(".py") else f"{path}*"))
        assert name.partition("[")[0] in source, start
    for patterns in HIDDEN.values():
        assert [each for each in patterns if each.rstrip("*_").removesuffix("_") not in PAGE] == []
