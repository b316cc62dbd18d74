"""One arena for all threads, and free pages that go back: in processes of their own, since both are for a process."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Final

import pytest

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="needs the GNU C library")

ARENAS: Final = """
import ctypes, threading
from concurrent.futures import ThreadPoolExecutor
from triolog.server.system.allocator import use_one_arena

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
together = threading.Barrier(8)

def work(_):
    together.wait()
    libc.free(libc.malloc(2000))

use_one_arena() if {is_one} else None
with ThreadPoolExecutor(8) as pool:
    list(pool.map(work, range(8)))
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""
"""Eight threads that allocate, and what the C library says of its arenas."""

HOLES: Final = """
from pathlib import Path
from triolog.server.system.allocator import give_back_free_pages

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [b"x" * 40_000 for _ in range(1000)]
full = resident_bytes()
del blocks[::2]
freed = resident_bytes()
give_back_free_pages()
print(full, freed, resident_bytes())
"""
"""Half of 40 MB is freed, by blocks of which each has used neighbours. Resident bytes before, after, and once trimmed."""


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("is_one", [True, False])
def test_threads_share_one_arena_where_they_are_told_to(is_one: bool) -> None:
    arenas = run(ARENAS.format(is_one=is_one)).count("<heap nr=")
    assert arenas == 1 if is_one else arenas > 1


def test_pages_in_which_nothing_is_go_back_to_the_system() -> None:
    full, freed, trimmed = map(int, run(HOLES).split())
    assert freed > full - 1_000_000, "malloc kept them"
    assert trimmed < freed - 15_000_000
