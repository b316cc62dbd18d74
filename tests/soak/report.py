"""What came of a run: the checker over its history, whether the server grew, and figures."""

from __future__ import annotations

import gc
import json
import resource
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.simulation.checker import check, write_cycles
from tests.simulation.history import Acknowledged, Event, Happened, Polled, Send
from tests.simulation.loading import load
from tests.soak import troubling
from tests.soak.processes import installed
from tests.soak.sampling import draw, rates

from .flatness import judge
from .layout import SOAK
from .run import Run
from .sampling import Sample, Sampler, load_samples

MOST_SHOWN: Final = 10
HISTORIES_RATE: Final = 40.0
SOAK_RATE: Final = 15.0
"""Records a second of each feeder: with transactions and what the pipes copy it is about 230 in all, and half a core."""


def histories(folder: Path, seed: str, families: Sequence[str], minutes: float, rate: float = HISTORIES_RATE) -> int:
    """Run, check, tell; the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(folder, seed, installed(families), troubling.HISTORIES, rate=rate)
    run.play(minutes * 60)
    told = {"seed": seed, "minutes": minutes, "rate": rate, **of_run(run)}
    return _tell(folder, told)


def soak(folder: Path, seed: str, families: Sequence[str], hours: float, rate: float = SOAK_RATE) -> int:
    """The same with few kills, none in the second half, and a look at what the server holds meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    seconds = hours * 3600
    run = Run(
        folder, seed, installed(families), troubling.SOAK, rate=rate, configurations=SOAK, quiet_server_after_s=seconds / 2
    )
    sampler = Sampler(folder / "samples.txt", run.server)
    run.on_turn = sampler.turn
    run.play(seconds)
    samples = load_samples(sampler.path)
    flatness = judge(samples)
    title = f"triolog serve under seven families of clients, {hours:g} hours, seed {seed}: {str(flatness).splitlines()[0]}"
    draw(samples, title, folder / "soak.svg")
    told = {"seed": seed, "hours": hours, "rate": rate, **of_run(run)}
    told["flat"] = flatness.is_flat
    told["judgements"] = str(flatness).splitlines()[1:]
    told["records a second, median"] = round(statistics.median(rate for _, rate in rates(samples)), 1)
    told["server_cpu_s"] = [
        each.cpu_s for each, after in zip(samples, [*samples[1:], None], strict=True) if _is_last(each, after)
    ]
    told["samples"] = [attrs.asdict(each) for each in samples]
    return _tell(folder, told)


def _is_last(sample: Sample, after: Sample | None) -> bool:
    """Of its life."""
    return after is None or after.life != sample.life


def of_run(run: Run) -> dict[str, Any]:
    return {**judged(run.histories, run.problems), "troubles": run.troublemaker.counts}


def _tell(folder: Path, told: dict[str, Any]) -> int:
    (folder / "report.json").write_text(json.dumps(told, indent=1))
    sys.stdout.write(text_of(told))
    return 1 if told["anomalies"] or told["problems"] or told.get("flat") is False else 0


def check_again(folder: Path) -> int:
    """Of a run that is over, what the checker says today."""
    told = judged(sorted(folder.glob("*.jsonl")), [])
    sys.stdout.write(text_of(told))
    return 1 if told["anomalies"] else 0


def judged(paths: Sequence[Path], problems: Sequence[str]) -> dict[str, Any]:
    """Anomalies and figures of a history. Its millions of values stay to the end: the collector need not look at them."""
    gc.disable()
    try:
        return _judged(paths, problems)
    finally:
        gc.enable()


def _judged(paths: Sequence[Path], problems: Sequence[str]) -> dict[str, Any]:
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
            case Happened() if count is not found.get("driver"):
                count[event.what] += 1
    return {who: dict(count) for who, count in sorted(found.items())}


def text_of(told: dict[str, Any]) -> str:
    lines = [f"{len(told['anomalies'])} anomalies {dict(told['kinds'])}, {len(told['problems'])} problems"]
    shown: Counter[str] = Counter()
    for kind, detail in told["anomalies"]:
        shown[kind] += 1
        if shown[kind] <= MOST_SHOWN:
            lines.append(f"  {kind}: {detail[:600]}")
    lines += [f"  problem: {each}" for each in told["problems"]]
    lines += told.get("judgements", ())
    lines.append(f"troubles: {told.get('troubles')}")
    for who, count in told["operations"].items():
        lines.append(f"  {who}: {', '.join(f'{number:,} {what}' for what, number in count.items())}")
    lines.append(
        f"{told['events']:,} events loaded in {told['loading_s']} s, checked in {told['checking_s']} s, "
        f"{told['checker_peak_mib']:,} MiB; {told['write cycles, which are allowed']} write cycles, which are allowed"
    )
    return "\n".join(lines) + "\n"
