"""Other systems than Linux: what Windows is told, and the page that lists what was run where."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import triolog
from triolog.protocol.platforms import NO_SERVER

from tests.support.hidden_names import HIDDEN, SKIPPED, SKIPPED_WITH_PORTABLE

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")

AS_ON_WINDOWS: Final = """
import asyncio, logging, os, select, socket, ssl, sys, tempfile, uuid

sys.platform = "win32"
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
"""


def as_on_windows(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_ON_WINDOWS + program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def test_on_windows_a_broker_is_refused_in_one_sentence_and_the_blocking_client_works() -> None:
    with triolog.blocking.open(native="127.0.0.1:0") as broker:
        done = as_on_windows(CONNECT, str(broker.native))
    assert done.stderr == ""
    *refused, offset, values = done.stdout.splitlines()
    assert refused == [NO_SERVER] * 3
    assert (offset, values) == ("0", "[b'espresso']")


def test_on_windows_the_command_ends_with_the_same_sentence() -> None:
    done = as_on_windows("import triolog.tools.cli; triolog.tools.cli.run()")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{NO_SERVER}\n")


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
