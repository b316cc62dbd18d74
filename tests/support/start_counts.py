"""Counts of a process after a start: its modules and its allocated blocks. Run each function in a process of its own."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import threading

BEFORE = len(sys.modules), sys.getallocatedblocks()


def counts_of_server() -> list[int]:
    """Run `triolog serve` with a listener for either protocol, and count when it says that it serves."""
    found = list[int]()
    reading, writing = os.pipe()

    def count() -> None:
        with open(reading, encoding="utf-8") as lines:
            next(line for line in lines if "serving " in line)
        found.extend(_counts())
        os.kill(os.getpid(), signal.SIGTERM)

    stderr = os.dup(2)
    os.dup2(writing, 2)
    try:
        threading.Thread(target=count, daemon=True).start()
        from triolog.tools.cli.main import main

        with tempfile.TemporaryDirectory() as folder:
            listeners = ["--native", "127.0.0.1:0", "--kafka", "127.0.0.1:0"]
            main(["serve", "--data-dir", f"{folder}/data", *listeners], standalone_mode=False)
    finally:
        os.dup2(stderr, 2)
    return found


def counts_of_program() -> list[int]:
    """Append a first record to a broker of this process, without listeners."""
    import triolog

    with triolog.blocking.open(native=None, topics=["first"]) as broker:
        broker.append("first", [b"record"])
        return _counts()


def counts_of_client() -> list[int]:
    """Import the blocking client."""
    import triolog

    assert callable(triolog.blocking.connect)
    return _counts()


def _counts() -> list[int]:
    modules = len(sys.modules) - BEFORE[0]
    gc.collect()
    return [modules, sys.getallocatedblocks() - BEFORE[1]]
