"""Programs with a broker inside, as processes of their own, and what is left in their directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from triolog.server.embedded import BlockingBroker
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE

from tests.support.server_process import DEADLINE_S, environment

T: Final = "topic"

BLOCKING: Final = """
import os, signal, sys, threading
from triolog.server.embedded import BlockingBroker, ForkedError

def say(*words):
    print(*words, flush=True)

{body}
"""

ASYNCIO: Final = """
import asyncio, os, signal, sys
from triolog.server.embedded import ForkedError
from triolog.server.embedded.aio import open_broker

def say(*words):
    print(*words, flush=True)

async def main():
    {body}

asyncio.run(main())
"""

TRIO: Final = """
import os, signal, sys
import trio
from triolog.server.embedded import ForkedError, open_broker

def say(*words):
    print(*words, flush=True)

async def main():
    {body}

trio.run(main)
"""

FACES: Final = {"blocking": BLOCKING, "asyncio": ASYNCIO, "trio": TRIO}


def program_of(face: str, body: str) -> str:
    """`body` is written with `await` and `async`, which a blocking program has not; `opened(...)` opens a broker."""
    if face == "blocking":
        plain = body.replace("await ", "").replace("async ", "").replace("opened(", "BlockingBroker(")
        return BLOCKING.format(body=plain)
    return FACES[face].format(body=body.replace("opened(", "open_broker(").replace("\n", "\n    "))


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
    with BlockingBroker(directory, native=None) as broker:
        return broker.log(T).values()
