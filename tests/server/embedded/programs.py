"""Programs with a broker inside, as processes of their own, and what is left in their directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import triolog
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE

from tests.support.server_process import DEADLINE_S, environment

PROGRAM: Final = """
import os, signal, sys, threading, warnings
import triolog
from triolog.server.embedded import ForkedError

def say(*words):
    print(*words, flush=True)
"""
FACES: Final = {"blocking": "", "asyncio": "import asyncio", "trio": "import trio"}
"""What else each imports."""


def program_of(face: str, body: str) -> str:
    """`body` is written with `await` and `async`, which a blocking program has not; `opened(...)` opens a broker."""
    if face == "blocking":
        return PROGRAM + body.replace("await ", "").replace("async ", "").replace("opened(", "triolog.blocking.open(")
    opened = "triolog.open(" if face == "trio" else "triolog.aio.open("
    main = body.replace("opened(", opened).replace("\n", "\n    ")
    return f"{PROGRAM}{FACES[face]}\nasync def main():\n    {main}\n{face}.run(main{'()' * (face == 'asyncio')})\n"


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a program; it is killed at the end of the block, if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        assert process.returncode is not None


def run(program: str, *arguments: object) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of a program that ends by itself."""
    with running(program, *arguments) as process:
        said, told = process.communicate(timeout=DEADLINE_S)
        return process.returncode, said, told


def is_clean(directory: Path) -> bool:
    """Whether it was left by an orderly stop."""
    return (directory / CLEAN_SHUTDOWN_FILE).exists()


def stored(directory: Path) -> list[bytes | None]:
    """The values of the topic."""
    with triolog.blocking.open(directory) as broker:
        return broker.log("topic").values()
