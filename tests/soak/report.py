"""What came of a run: the checker over its history, whether the server grew, and figures."""

from __future__ import annotations

import gc
import itertools
import json
import resource
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.simulation.checker import check, write_cycles
from tests.simulation.history import Acknowledged, Event, Happened, Polled, Send
from tests.simulation.loading import load
from tests.soak import troubling
from tests.soak.drawing import draw, rates
from tests.soak.owners import growth, load_holdings
from tests.soak.processes import installed
from tests.soak.run import SOAK, Run
from tests.soak.sampling import MIB, Sample, Sampler, load_samples

MOST_SHOWN: Final = 10
WATCHED: Final = (sys.executable, str(Path(__file__).with_name("watched_server.py")))
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
        folder,
        seed,
        installed(families),
        troubling.SOAK,
        rate=rate,
        configurations=SOAK,
        quiet_server_after_s=seconds / 2,
        serve=WATCHED,
    )
    sampler = Sampler(folder / "samples.txt", run.server)
    run.on_turn = sampler.turn
    run.play(seconds)
    samples = load_samples(sampler.path)
    flatness = judge(samples)
    title = f"triolog serve under seven families of clients, {hours:g} hours, seed {seed}: {str(flatness).splitlines()[0]}"
    draw(samples, load_holdings(folder), title, folder / "soak.svg")
    told = {"seed": seed, "hours": hours, "rate": rate, **of_run(run)}
    told["flat"] = flatness.is_flat
    told["judgements"] = str(flatness).splitlines()[1:]
    told["owners"] = owners_of(folder, samples)
    told["records a second, median"] = round(statistics.median(rate for _, rate in rates(samples)), 1)
    told["server_cpu_s"] = [
        each.cpu_s for each, after in zip(samples, [*samples[1:], None], strict=True) if _is_last(each, after)
    ]
    told["samples"] = [attrs.asdict(each) for each in samples]
    return _tell(folder, told)


def owners_of(folder: Path, samples: Sequence[Sample]) -> list[str]:
    """Of the last life, from when it was warm, or from its begin if it never was."""
    holdings = load_holdings(folder)
    life = max(each.life for each in samples)
    last = [each for each in samples if each.life == life]
    from_s = WARM_S if last[-1].age_s > WARM_S + JUDGED_S else 0.0
    return [f"who held the memory of life {life}:", *growth(holdings.get(life, []), last, from_s)]


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
    lines += told.get("owners", ())
    lines.append(f"troubles: {told.get('troubles')}")
    for who, count in told["operations"].items():
        lines.append(f"  {who}: {', '.join(f'{number:,} {what}' for what, number in count.items())}")
    lines.append(
        f"{told['events']:,} events loaded in {told['loading_s']} s, checked in {told['checking_s']} s, "
        f"{told['checker_peak_mib']:,} MiB; {told['write cycles, which are allowed']} write cycles, which are allowed"
    )
    return "\n".join(lines) + "\n"


WARM_S: Final = 1200.0
JUDGED_S: Final = 1800.0
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
LIMITS: Final = {"pss": 6.0 * MIB, "private": 6.0 * MIB, "descriptors": 6.0, "threads": 1.0, "tasks": 6.0}
"""Of growth in an hour."""
EVERY_QUANTITY: Final = tuple(LIMITS)


@attrs.frozen(kw_only=True)
class Judgement:
    """One quantity in one life. `level`: its median there."""

    quantity: str
    life: int
    judged_s: float
    level: float
    growth: float
    """In an hour."""
    limit: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.limit

    def __str__(self) -> str:
        unit, name = (MIB, " MiB") if self.limit >= MIB else (1, "")
        return (
            f"life {self.life}, {self.judged_s / 60:.0f} minutes: {self.quantity} {self.level / unit:.1f}{name}, "
            f"{self.growth / unit:+.2f}{name} an hour, may be {self.limit / unit:+.0f}: {'flat' if self.is_flat else 'GROWS'}"
        )


@attrs.frozen
class Flatness:
    judgements: tuple[Judgement, ...]

    @property
    def is_flat(self) -> bool:
        """No life that is long enough: nobody can say so."""
        return bool(self.judgements) and all(each.is_flat for each in self.judgements)

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "not flat" if self.judgements else "not flat: no life is long enough to be judged"
        return "\n".join([verdict, *(f"  {each}" for each in self.judgements)])


def judge(samples: Iterable[Sample]) -> Flatness:
    """Whether a server grows: the slope of what it holds, within each life that is long enough to tell.

    A life is judged from `WARM_S` on, where `JUDGED_S` are left of it. Until then caches fill, clients come, and the heap grows
    by steps of some MiB that become rare: in the first soak it was 62 MiB after 5 minutes, 65 after 17, then +0.8 an hour.
    Samples become medians of a minute, so that a round of compaction or a scrape counts for little; the slope is that of Theil
    and Sen, the median of the slopes between all pairs of minutes, which a step or a few outliers do not move. A quantity is
    flat in a life when its slope is at most `LIMITS`. A server is flat when every judged life is, and one at least was.

    6 MiB an hour are 9 bytes for each of 200 records a second; 64 bytes that are lost with one request of ten are as much.
    Segments of the load open some descriptors and close them again. A run of two hours has a life of one hour.
    """
    judgements: list[Judgement] = []
    by_life = itertools.groupby(sorted(samples, key=lambda each: (each.life, each.age_s)), key=lambda each: each.life)
    for life, group in by_life:
        warm = [sample for sample in group if sample.age_s >= WARM_S]
        if warm and warm[-1].age_s - WARM_S >= JUDGED_S:
            judgements += [_judge(quantity, life, warm) for quantity in LIMITS]
    return Flatness(tuple(judgements))


def _judge(quantity: str, life: int, samples: Sequence[Sample]) -> Judgement:
    minutes: dict[int, list[float]] = {}
    for sample in samples:
        minutes.setdefault(int(sample.age_s // MINUTE_S), []).append(float(getattr(sample, quantity)))
    points = [(minute * MINUTE_S, statistics.median(values)) for minute, values in minutes.items()]
    return Judgement(
        quantity=quantity,
        life=life,
        judged_s=samples[-1].age_s - WARM_S,
        level=statistics.median(value for _, value in points),
        growth=slope(points) * HOUR_S,
        limit=LIMITS[quantity],
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil and Sen's, of points whose first coordinates all differ."""
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2))
