"""What came of a run: the checker over its history, and figures."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.simulation.checker import check, write_cycles
from tests.simulation.history import Acknowledged, Event, Polled, Send
from tests.simulation.loading import load

from . import troubles
from .families import installed
from .run import Run

MOST_SHOWN: Final = 10


def histories(folder: Path, asked: argparse.Namespace) -> int:
    """Run, check, tell; the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(folder, asked.seed, installed(asked.families), troubles.HISTORIES, rate=asked.rate or 40)
    run.play(asked.minutes * 60)
    told = judged(run.histories, run.problems)
    told["troubles"] = run.counts
    told["minutes"] = asked.minutes
    (folder / "report.json").write_text(json.dumps(told, indent=1))
    sys.stdout.write(text_of(told))
    return 1 if told["anomalies"] or told["problems"] else 0


def check_again(folder: Path) -> int:
    """Of a run that is over, what the checker says today."""
    told = judged(sorted(folder.glob("*.jsonl")), [])
    sys.stdout.write(text_of(told))
    return 1 if told["anomalies"] else 0


def judged(paths: Sequence[Path], problems: Sequence[str]) -> dict[str, Any]:
    """Anomalies and figures of a history."""
    began = time.perf_counter()
    events = load(paths)
    loaded = time.perf_counter()
    anomalies = check(events)
    checked = time.perf_counter()
    return {
        "anomalies": [[*each] for each in anomalies],
        "kinds": Counter(each.kind for each in anomalies),
        "problems": list(problems),
        "write cycles, which are allowed": write_cycles(events),
        "events": len(events),
        "operations": operations(events),
        "loading_s": round(loaded - began, 1),
        "checking_s": round(checked - loaded, 1),
        "checker_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def operations(events: Sequence[Event]) -> dict[str, dict[str, int]]:
    """What each process did: events, records sent, acknowledged and read."""
    found: dict[str, Counter[str]] = {}
    for event in events:
        count = found.setdefault(event.who.partition("/")[0], Counter())
        count["events"] += 1
        match event:
            case Send():
                count["sent"] += len(event.records)
            case Acknowledged():
                count["acknowledged"] += len(event.ids)
            case Polled():
                count["read"] += len(event.records)
    return {who: dict(count) for who, count in sorted(found.items())}


def text_of(told: dict[str, Any]) -> str:
    lines = [f"{len(told['anomalies'])} anomalies {dict(told['kinds'])}, {len(told['problems'])} problems"]
    shown: Counter[str] = Counter()
    for kind, detail in told["anomalies"]:
        shown[kind] += 1
        if shown[kind] <= MOST_SHOWN:
            lines.append(f"  {kind}: {detail[:600]}")
    lines += [f"  problem: {each}" for each in told["problems"]]
    lines.append(f"troubles: {told.get('troubles')}")
    for who, count in told["operations"].items():
        lines.append(f"  {who}: {', '.join(f'{number:,} {what}' for what, number in count.items())}")
    lines.append(
        f"{told['events']:,} events loaded in {told['loading_s']} s, checked in {told['checking_s']} s, "
        f"{told['checker_peak_mib']:,} MiB; {told['write cycles, which are allowed']} write cycles, which are allowed"
    )
    return "\n".join(lines) + "\n"
