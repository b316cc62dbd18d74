"""`python -m tests.soak histories --minutes M --seed S`, `python -m tests.soak soak --hours H --seed S`: what `make` runs.

`python -m tests.soak check --folder FOLDER` has the checker look again at what a run has left.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.soak.processes import FAMILIES

from . import report
from .run import take_signals

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("what", choices=("histories", "soak", "check"))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--rate", type=float, help="records a second of each feeder")
    parser.add_argument("--families", nargs="*", default=FAMILIES, choices=FAMILIES)
    parser.add_argument(
        "--folder", type=Path, help="where everything is kept; build/soak/WHAT-SEED otherwise; `check` looks at what is there"
    )
    asked = parser.parse_args()
    take_signals()
    folder = asked.folder or ROOT / "build" / "soak" / f"{asked.what}-{asked.seed}"
    if asked.what == "check":
        return report.check_again(folder)
    rate = {} if asked.rate is None else {"rate": asked.rate}
    if asked.what == "soak":
        return report.soak(folder, asked.seed, asked.families, asked.hours, **rate)
    return report.histories(folder, asked.seed, asked.families, asked.minutes, **rate)


if __name__ == "__main__":
    sys.exit(main())
