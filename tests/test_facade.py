"""`import triolog`: the names that it gives, what it costs, and what type checkers make of them."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import triolog
from triolog.server.config.version import VERSION

from tests.support.interpreters import ROOT

PROGRAMS = {
    "trio": """
import trio
import triolog

async def main() -> None:
    async with triolog.open(topics=["t"], native="127.0.0.1:0") as broker, triolog.connect(str(broker.native)) as client:
        await broker.append("t", [b"espresso"])
        await client.append("t", [b"lungo"])
        async for record in client.follow("t", max_wait_s=0):
            print(record.value, triolog.__version__)

trio.run(main)
""",
    "asyncio": """
import asyncio
import triolog.aio

async def main() -> None:
    async with triolog.aio.open(topics=["t"], native="127.0.0.1:0") as broker:
        await broker.append("t", [b"espresso"])
        async with triolog.aio.connect(str(broker.native)) as client:
            await client.append("t", [b"lungo"])
            async for record in client.follow("t", max_wait_s=0):
                print(record.value, triolog.__version__)

asyncio.run(main())
""",
    "blocking": """
import triolog

with triolog.blocking.open(topics=["t"], native="127.0.0.1:0") as broker:
    broker.append("t", [b"espresso"])
    with triolog.blocking.connect(str(broker.native)) as client:
        client.append("t", [b"lungo"])
        for record in client.follow("t", max_wait_s=0):
            print(record.value, triolog.__version__)
""",
}
MISSPELT = "misspelt.py"
HEAD = """import triolog
from triolog.tools.client.blocking import BlockingAppender, BlockingClient, BlockingConsumer, BlockingProducer
from triolog.tools.client.appender import Appender
from triolog.tools.client.connection import Client
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.producer import open_producer

def misspell(client: Client, blocking: BlockingClient) -> None:
"""
MISSPELLINGS = {
    'triolog.open(topcis=["t"])': "topics",
    'triolog.aio.open(topcis=["t"])': "topics",
    'triolog.blocking.open(topcis=["t"])': "topics",
    "open_producer(client, lingre_ms=0)": "linger_ms",
    "BlockingProducer(blocking, lingre_ms=0)": "linger_ms",
    "Appender(client, lingre_ms=0)": "linger_ms",
    "BlockingAppender(blocking, lingre_ms=0)": "linger_ms",
    "open_consumer(client, folow=True)": "follow",
    "BlockingConsumer(blocking, folow=True)": "follow",
}
WRONG_LINES = list(range(HEAD.count("\n") + 1, HEAD.count("\n") + 1 + len(MISSPELLINGS)))
SAID = f"b'espresso' {VERSION}\nb'lungo' {VERSION}\n"


def run(*arguments: str) -> str:
    return subprocess.run((sys.executable, *arguments), check=True, capture_output=True, text=True).stdout


def test_it_costs_nothing_until_something_is_used() -> None:
    loaded = "import sys, triolog; print(*(name for name in sys.modules if name.startswith(('triolog', 'trio.', 'attr'))))"
    assert run("-c", loaded) == "triolog\n"
    assert run("-c", "import triolog; print(triolog.__version__)") == f"{VERSION}\n"


@pytest.mark.merge
def test_a_trio_program_does_not_load_the_other_faces() -> None:
    loaded = "import sys, triolog; triolog.open; print(*(name for name in sys.modules if name in %s))"
    others = ("triolog.server.embedded.aio", "triolog.server.embedded.blocking", "triolog.server.fake.proxies", "asyncio")
    assert run("-c", loaded % (others,)) == "\n"


@pytest.mark.merge
@pytest.mark.parametrize("face", ["aio", "blocking"])
def test_a_program_with_a_broker_does_not_load_the_client(face: str) -> None:
    loaded = "import sys, triolog; triolog.%s.open; print(*(name for name in sys.modules if name in %s))"
    clients = ("triolog.tools.client.blocking", "triolog.tools.client.connection", "triolog.tools.client.producer")
    assert run("-c", loaded % (face, clients)) == "\n"


def test_every_name_of_it_is_there() -> None:
    assert dir(triolog) == sorted(triolog.__all__)
    assert [name for name in triolog.__all__ if not hasattr(triolog, name)] == []
    with pytest.raises(AttributeError, match="'triolog' has no attribute 'opne'"):
        _ = triolog.opne  # type: ignore[attr-defined]


@pytest.mark.merge
@pytest.mark.parametrize("face", PROGRAMS)
def test_ten_lines_run(face: str) -> None:
    assert run("-c", PROGRAMS[face]) == SAID


def write_programs(folder: Path) -> None:
    """The programs, and one that misspells an option of each entry."""
    for face, program in PROGRAMS.items():
        (folder / f"{face}_program.py").write_text(program)
    (folder / MISSPELT).write_text(HEAD + "".join(f"    {call}\n" for call in MISSPELLINGS))


def test_ten_lines_are_typed(tmp_path: Path) -> None:
    """As a user's mypy sees them, in its strict mode."""
    api = pytest.importorskip("mypy.api", reason="mypy comes with the extra dev")
    write_programs(tmp_path)
    usual = gc.get_threshold()
    try:
        said, errors, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)])
    finally:
        gc.set_threshold(*usual)  # mypy leaves others behind
    found = re.findall(r"(\w+\.py):(\d+): error: Unexpected keyword argument .*did you mean \"(\w+)\"", said)
    assert (found, errors) == (
        [(MISSPELT, *each) for each in zip(map(str, WRONG_LINES), MISSPELLINGS.values(), strict=True)],
        "",
    )
    assert said.endswith(f"Found {len(found)} errors in 1 file (checked 4 source files)\n"), said


def test_ten_lines_are_typed_for_pyright(tmp_path: Path) -> None:
    """As a user's editor sees them, in pyright's strict mode."""
    pytest.importorskip("pyright", reason="pyright comes with the extra dev")
    write_programs(tmp_path)
    config = {"include": [str(tmp_path)], "extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.startswith("{"), done.stderr
    told = json.loads(done.stdout)
    found = [(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in told["generalDiagnostics"]]
    assert found == [(MISSPELT, line) for line in WRONG_LINES], told["generalDiagnostics"]
    assert told["summary"]["filesAnalyzed"] == 1 + len(PROGRAMS)
