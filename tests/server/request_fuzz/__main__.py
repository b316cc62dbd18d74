"""python -m tests.server.request_fuzz --requests 500000 --seed 7"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import trio

from .run import VARIANTS, fuzzed_broker, run


async def _run(variant: str, requests: int, seed: int) -> None:
    memory = Path("/dev/shm")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        async with fuzzed_broker(Path(path), **VARIANTS[variant]()) as fuzzed:
            say = lambda text: sys.stderr.write(f"{variant} seed {seed}: {text}, {time.perf_counter() - started:.0f} s\n")  # noqa: E731
            await run(fuzzed, requests, seed, say)
            sys.stderr.write(f"{len(fuzzed.asked)} kinds of requests\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", choices=list(VARIANTS), action="append")
    chosen = parser.parse_args()
    for variant in chosen.variant or VARIANTS:
        trio.run(_run, variant, chosen.requests, chosen.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
