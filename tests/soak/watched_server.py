"""The command of a server whose memory a soak watches: `triolog` with a thread that notes who holds the memory of the process.

Run by path with `triolog`'s arguments. Every `SOAK_EVERY_S` seconds (30) it appends a line of JSON to the file that
`SOAK_MEMORY` names. With `SOAK_TRACE=1`, `tracemalloc` says which folder of the product each object is from, and the server is
slower.

All figures are bytes but the counts of objects. Linux with the GNU C library, and CPython, whose statistics these are.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import sys
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Final

MOST: Final = 40
"""Classes and folders that a line names, the largest first."""
KIB: Final = 1024


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library 2.33 and later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    )


def c_library() -> dict[str, int]:
    """Bytes that `malloc` has from the system, that it has given out, and that it keeps though they are free."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    told = libc.mallinfo2()
    return {"c held": told.arena + told.hblkhd, "c used": told.uordblks + told.hblkhd, "c free": told.fordblks}


def python_arenas() -> dict[str, int]:
    """Bytes in the arenas of Python's small objects, and of them used. Python does not tell while `tracemalloc` works."""
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    libc.fflush.argtypes = libc.fclose.argtypes = [ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    print_statistics = ctypes.pythonapi._PyObject_DebugMallocStats
    print_statistics.argtypes = [ctypes.c_void_p]
    print_statistics(stream)
    libc.fclose(stream)
    told = (text.value or b"").decode()
    libc.free(text)
    held = re.search(r"arenas \* [\d,]+ bytes/arena += +([\d,]+)", told)
    used = re.search(r"# bytes in allocated blocks += +([\d,]+)", told)
    if held is None or used is None:
        return {}
    return {"python held": int(held[1].replace(",", "")), "python used": int(used[1].replace(",", ""))}


def pages() -> dict[str, int]:
    """This process's part of the memory behind its mappings: of logs, of programs and libraries, and of no file."""
    found: Counter[str] = Counter()
    kind = ""
    with Path("/proc/self/smaps").open() as file:
        for line in file:
            if (mapping := MAPPING.match(line)) is not None:
                kind = _kind(mapping[1])
            elif line.startswith("Pss:"):
                found[kind] += int(line.split()[1]) * KIB
    return dict(found)


MAPPING: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")


def _kind(path: str) -> str:
    if not path.startswith("/"):
        return "anonymous"
    return "logs" if ".index" in path or ".timeindex" in path or ".log" in path else "programs"


def objects() -> dict[str, int]:
    """How many objects of which class the collector looks at, the most first; not those from before the server was ready."""
    return dict(Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects()).most_common(MOST))


def traced() -> dict[str, int]:
    """Bytes of what was allocated from each folder of the product, and from each library."""
    found: Counter[str] = Counter()
    for each in tracemalloc.take_snapshot().statistics("filename"):
        found[_subject(each.traceback[0].filename)] += each.size
    return dict(found.most_common(MOST))


def _subject(filename: str) -> str:
    path = Path(filename)
    parts = path.parts
    if filename.startswith("<frozen importlib"):
        return "modules"
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    for root in ("server", "protocol", "tools"):
        if root in parts:
            return "/".join(parts[parts.index(root) : -1])
    return "python"


def watch(path: Path, every_s: float, *, with_trace: bool) -> None:
    """Append lines for ever."""
    began = time.monotonic()
    while True:
        time.sleep(every_s)
        held = {**pages(), **c_library(), **python_arenas()}
        line = {"age_s": round(time.monotonic() - began, 1), "held": held, "objects": objects()}
        if with_trace:
            line["traced"] = traced()
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> int:
    if with_trace := os.environ.get("SOAK_TRACE") == "1":
        tracemalloc.start()
    from triolog.server.system.allocator import use_one_arena
    from triolog.tools.cli import run

    use_one_arena()  # before there is a thread: `malloc_trim` gives nothing back of the end of another arena
    where, every_s = Path(os.environ["SOAK_MEMORY"]), float(os.environ.get("SOAK_EVERY_S", "30"))
    threading.Thread(target=watch, args=(where, every_s), kwargs={"with_trace": with_trace}, daemon=True).start()
    sys.argv[0] = "triolog"
    return run()


if __name__ == "__main__":
    sys.exit(main())
