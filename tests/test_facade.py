"""`import triolog`: the names that it gives, what it costs, and what type checkers make of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import triolog

from tests.support.interpreters import PROJECT

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
SAID = f"b'espresso' {PROJECT['version']}\nb'lungo' {PROJECT['version']}\n"


def run(*arguments: str) -> str:
    return subprocess.run((sys.executable, *arguments), check=True, capture_output=True, text=True).stdout


def test_it_costs_nothing_until_something_is_used() -> None:
    loaded = "import sys, triolog; print(*(name for name in sys.modules if name.startswith(('triolog', 'trio.', 'attr'))))"
    assert run("-c", loaded) == "triolog\n"
    assert run("-c", "import triolog; print(triolog.__version__)") == f"{PROJECT['version']}\n"


def test_every_name_of_it_is_there() -> None:
    assert dir(triolog) == sorted(triolog.__all__)
    assert [name for name in triolog.__all__ if not hasattr(triolog, name)] == []
    with pytest.raises(AttributeError, match="'triolog' has no attribute 'opne'"):
        _ = triolog.opne  # type: ignore[attr-defined]


@pytest.mark.parametrize("face", PROGRAMS)
def test_ten_lines_run(face: str) -> None:
    assert run("-c", PROGRAMS[face]) == SAID


def test_ten_lines_are_typed(tmp_path: Path) -> None:
    """As a user's mypy sees them, in its strict mode."""
    api = pytest.importorskip("mypy.api", reason="mypy comes with the extra dev")
    for face, program in PROGRAMS.items():
        (tmp_path / f"{face}_program.py").write_text(program)
    said, errors, status = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)])
    assert (said, errors, status) == ("Success: no issues found in 3 source files\n", "", 0)
