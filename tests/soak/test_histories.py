"""Real clients, a server that is killed, and the checker over what they noted; what is planted there is found.

The verdict on a server's growth can go either way, and does so for the right series; samples become a picture.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.clients.external_programs import ProgramUnavailableError, unavailable
from tests.simulation.checker import check
from tests.simulation.loading import events_of, load
from tests.soak.drawing import HELD, draw, rates
from tests.soak.owners import Holding, growth, load_holdings
from tests.soak.processes import FAMILIES, command_of
from tests.soak.report import EVERY_QUANTITY, LIMITS, WATCHED, judge, judged, operations
from tests.soak.run import CLASSIC, FEED, LOOK, Run, mover, pipe, reader
from tests.soak.sampling import KIB, MIB, Sample, disk_bytes, memory_of, values_of
from tests.soak.troubling import Pace
from tests.support.counts import LONG, by_tier, is_at_least
from tests.support.forked_servers import ServerForker
from tests.support.server_process import COMMAND, ON_ANY_PORT, ServerProcess

ONE_KILL_PROCESSES: Final = {
    "confluent": ("confluent", (FEED, CLASSIC, LOOK)),
    "pipe-0": ("confluent", (pipe("pipe-0", "classic"),)),
    "native": ("native", (mover("native"), reader("native", "plain", "expiring", committed=False))),
}
ONE_KILL: Final = Pace(server=(1.0, 1.0), others=None, first_s=0.0)
ONE_KILL_S: Final = 1.5
ALL_FAMILIES_S: Final = by_tier(commit=0.0, merge=18.0, long=75.0)
SLOW: Final = Pace(server=(10.0, 25.0), others=(3.0, 10.0))
QUICK: Final = Pace(server=(6.0, 15.0), others=(2.0, 6.0), first_s=3.0)
"""As many troubles in 18 s as in 30 of the slow pace."""
ALL_FAMILIES_PACE: Final = by_tier(commit=QUICK, merge=QUICK, long=SLOW)

Line = dict[str, Any]


def run_of(folder: Path, pace: Pace, families: Sequence[str] = FAMILIES, **more: Any) -> Run:
    return Run(folder, "a seed", {family: command_of(family) for family in families}, pace, **{"rate": 60.0, **more})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Run:
    """One run in which the server is killed, or stopped, and started again."""
    folder = tmp_path_factory.mktemp("recorded")
    run = run_of(folder, ONE_KILL, ("confluent", "native"), processes=ONE_KILL_PROCESSES, serve=server_forker)

    def is_enough() -> bool:
        notes = "".join(path.read_text() for path in run.histories)
        return run.server.lives > 1 and notes.count('"looked up"') > 3 and notes.count('"acknowledged"') > 300

    run.play(ONE_KILL_S, is_enough)
    return run


@pytest.mark.merge
def test_a_run_of_python_clients_and_a_kill_keeps_every_promise(recorded: Run) -> None:
    told = judged(recorded.histories, recorded.problems)
    assert (told["anomalies"], told["problems"]) == ([], []), recorded.server.wrote()
    assert recorded.server.lives >= 3
    done = told["operations"]
    for who, what in (
        ("confluent", "acknowledged"),
        ("native", "acknowledged"),
        ("pipe-0", "acknowledged"),
        ("native", "read"),
    ):
        assert done[who][what], who


def lines_of(run: Run) -> list[Line]:
    lines = [json.loads(line) for path in run.histories for line in path.read_text().splitlines()]
    return sorted(lines, key=lambda line: line["at"])


def stored(lines: list[Line], topic: str, *, committed: bool) -> Line:
    """The fullest partition, as it was at the end."""
    found = [each for each in lines if each["do"] == "stored" and each["of"][0] == topic and each["committed"] is committed]
    return max(found, key=lambda each: len(each["records"]))


def lose_a_record(lines: list[Line]) -> None:
    there = stored(lines, "plain", committed=False)["records"]
    acknowledged = {each for line in lines if line["do"] == "acknowledged" for each in line["ids"]}
    there.remove(next(record for record in there if record[1] in acknowledged))


def abort_what_was_committed(lines: list[Line]) -> None:
    visible = {record[1] for line in lines if line["do"] == "stored" and line["committed"] for record in line["records"]}
    sent = next(line for line in lines if line["do"] == "sends" and line["transaction"] and line["records"][0][0] in visible)
    next(line for line in lines if line["do"] == "ended" and line["transaction"] == sent["transaction"])["committed"] = False


def let_a_group_go_back(lines: list[Line]) -> None:
    told = [line for line in lines if line["do"] == "offset fetched" and line["who"] == "driver" and line["group"] == "classic"]
    told[-1]["offset"] -= 1


def let_a_reader_skip(lines: list[Line]) -> None:
    polled = next(line for line in lines if line["do"] == "polled" and len(line["records"]) > 2)
    del polled["records"][1]


def answer_a_lookup_wrongly(lines: list[Line]) -> None:
    next(line for line in lines if line["do"] == "looked up" and line["offset"] >= 0)["offset"] += 1


@pytest.mark.merge
@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_a_record, "lost"),
        (abort_what_was_committed, "aborted read"),
        (let_a_group_go_back, "offset went back"),
        (let_a_reader_skip, "skipped"),
        (answer_a_lookup_wrongly, "wrong time"),
    ],
)
def test_a_planted_anomaly_is_found(recorded: Run, plant: Callable[[list[Line]], None], kind: str) -> None:
    """Of each kind of notes one; `simulation/test_checker.py` has all anomalies."""
    lines = lines_of(recorded)
    plant(lines)
    assert kind in {anomaly.kind for anomaly in check(events_of(lines))}


@pytest.mark.merge
@pytest.mark.timeout(1500)
def test_a_run_of_all_families_keeps_every_promise(tmp_path: Path, server_forker: ServerForker) -> None:
    try:
        run = run_of(tmp_path, ALL_FAMILIES_PACE, rate=40.0, serve=COMMAND if is_at_least(LONG) else server_forker)
    except ProgramUnavailableError as exc:
        unavailable(str(exc))
    run.play(ALL_FAMILIES_S)
    told = judged(run.histories, run.problems)
    assert (told["anomalies"], told["problems"]) == ([], []), run.server.wrote()
    done = operations(load(run.histories))
    assert all(count["acknowledged"] for who, count in done.items() if who != "driver"), done


HOUR_S: Final = 3600
EVERY_S: Final = 5
Series = Callable[[float, random.Random], float]
"""Of the age in seconds."""


def series(quantity: str, value: Series, *, life: int = 0, seconds: int = HOUR_S) -> list[Sample]:
    rng = random.Random(quantity)
    flat = {"pss": 90 * MIB, "private": 80 * MIB, "descriptors": 60, "threads": 8, "tasks": 40}
    rest = {"rss": 0, "children": 0, "segments": 0, "disk_bytes": 0, "cpu_s": 0.0}
    return [
        Sample(
            at_s=age + life * HOUR_S,
            life=life,
            age_s=age,
            records=10 * age,
            accounts={},
            **{**rest, **flat, quantity: int(value(age, rng))},
        )
        for age in range(0, seconds, EVERY_S)
    ]


def noisy(base: float, noise: float, growth: float = 0.0) -> Series:
    """`growth`: in an hour."""
    return lambda age, rng: base + rng.uniform(-noise, noise) + growth * age / HOUR_S


LEVELS: Final = [sample for life in range(3) for sample in series("pss", noisy((90 + 20 * life) * MIB, MIB), life=life)]


@pytest.mark.parametrize(
    ("growing", "samples"),
    [
        *((set(), series(each, noisy(100 * limit, limit))) for each, limit in LIMITS.items()),
        *(({(each, 0)}, series(each, noisy(100 * limit, limit, 2 * limit))) for each, limit in LIMITS.items()),
        # before it is warm, a saw, a wave, one jump, a few peaks, less and less
        (set(), series("pss", lambda age, rng: MIB * (40 + 50 * min(1.0, age / 1200)))),
        (set(), series("pss", lambda age, rng: MIB * (90 + age % 120 / 10))),
        (set(), series("pss", lambda age, rng: MIB * (90 + 10 * math.sin(age / 60)))),
        (set(), series("descriptors", lambda age, rng: 60 + 40 * (age > 3300))),
        (set(), series("pss", lambda age, rng: MIB * (90 + 3 * (age > 2400)))),
        (set(), series("descriptors", lambda age, rng: 60 + 200 * (rng.random() < 0.05))),
        (set(), series("pss", noisy(90 * MIB, MIB, -20 * MIB))),
        # stairs of 12 MiB an hour
        ({("pss", 0)}, series("pss", lambda age, rng: MIB * (90 + age // 300))),
        # a later life may begin higher: its directory has more in it
        (set(), LEVELS),
        ({("pss", 3)}, [*LEVELS, *series("pss", noisy(90 * MIB, MIB, 50 * MIB), life=3)]),
    ],
)
def test_what_grows_in_a_life_is_found_and_nothing_else(growing: set[tuple[str, int]], samples: list[Sample]) -> None:
    found = judge(samples)
    assert {each.quantity for each in found.judgements} == set(EVERY_QUANTITY)
    assert {(each.quantity, each.life) for each in found.judgements if not each.is_flat} == growing
    assert found.is_flat is not bool(growing)


def test_lives_that_are_too_short_say_nothing_and_nothing_is_not_flat() -> None:
    short = judge(series("pss", noisy(90 * MIB, MIB), seconds=2900))
    assert short.judgements == ()
    assert not short.is_flat
    assert "no life is long enough" in str(judge([]))


HOLDINGS: Final = {
    life: [
        Holding(age_s=age, held={**dict.fromkeys(HELD, MIB), "c held": MIB + age * KIB}, objects={"builtins.dict": 100 + age})
        for age in range(0, HOUR_S, 30)
    ]
    for life in range(3)
}
"""The C library's share grows by 1 KiB a second, and a dict comes with each."""


def test_the_table_of_owners_names_who_grew_and_by_how_much() -> None:
    samples = [attrs.evolve(each, accounts={"classic groups": MIB * (each.age_s > 1800)}) for each in LEVELS[: HOUR_S // 5]]
    assert growth(HOLDINGS[0], samples, from_s=1200.0) == [
        "held: c held: 2.30 -> 4.35 MiB, +2.05",
        "kept for clients: classic groups: 0.00 -> 1.00 MiB, +1.00",
        "objects: builtins.dict: 1,435 -> 3,535, +2,100",
    ]


@pytest.mark.merge
@pytest.mark.parametrize("trace", ["0", "1"])
def test_a_watched_server_says_who_holds_its_memory(tmp_path: Path, trace: str) -> None:
    told = tmp_path / "memory-0.txt"
    watching = {"SOAK_MEMORY": str(told), "SOAK_EVERY_S": "0.05", "SOAK_TRACE": trace}
    arguments = ["--data-dir", str(tmp_path / "data"), *ON_ANY_PORT]
    with ServerProcess.spawn(tmp_path, arguments, command=WATCHED, extra_environment=watching) as server:
        server.wait_ready()
        told.unlink(missing_ok=True)  # what was noted before
        while not told.exists() or len(told.read_text().splitlines()) < 2:
            assert server.process.poll() is None, server.stderr()
    with told.open("a") as file:
        file.write('{"age_s": 1.0, "he')  # as a kill may leave it
    last = load_holdings(tmp_path)[0][-1]
    python = {"python held", "python used"} if trace == "0" else set()  # Python does not tell while it traces
    assert {each for each in HELD if last.held.get(each)} >= {"anonymous", "programs", "c held", "c used", *python}
    assert last.held["c used"] <= last.held["c held"]
    assert last.held["anonymous"] > 10 * MIB
    assert last.objects
    assert bool(last.traced) is (trace == "1")
    assert trace == "0" or {"trio", "server/broker"} <= last.traced.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """matplotlib opens its fonts when it first draws text, and keeps them open."""
    path = tmp_path_factory.mktemp("pictures")
    draw(LEVELS, HOLDINGS, "a title", path / "soak.svg")
    return path


@pytest.mark.merge
def test_the_picture_has_all_curves_and_is_the_same_again(folder: Path) -> None:
    text = (folder / "soak.svg").read_text()
    labels = ("a title", "memory, MiB", "private", "descriptors", "tasks", "segments", "on disk, MiB", "records a second")
    for label in (*labels, *HELD):
        assert label in text
    draw(LEVELS, HOLDINGS, "a title", folder / "again.svg")
    assert (folder / "again.svg").read_text() == text
    assert {rate for _, rate in rates(LEVELS)} == {10.0}, "of one life each"


def test_figures_of_a_process_are_read(tmp_path: Path) -> None:
    text = '# HELP a b\na_total 3.0\nb{topic="t t",partition="1"} 1e+06\n'
    assert dict(values_of(text)) == {"a_total": 3.0, 'b{topic="t t",partition="1"}': 1e6}
    memory = memory_of(os.getpid())
    assert 0 < memory["Private_Dirty"] <= memory["Pss"] <= memory["Rss"]
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 100_000 <= disk_bytes(tmp_path) < 200_000
