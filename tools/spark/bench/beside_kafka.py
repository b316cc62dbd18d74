"""The row that measures triolog's source beside Spark's own Kafka source: the same records of one server, by two listeners.

Each sample is a job in a process of its own (`kafka_job`) on a standalone cluster with two workers, so that the start of the
driver and of the executors counts, as it does for a job of `spark-submit`.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from ...bench.kafka.jars import PeerMissingError
from ...bench.measuring.report import Line, RowResult, absent, at_most, ratio
from . import kafka_source
from .cluster import Cluster, standalone_cluster
from .kafka_job import KINDS, LATENCY_TOPIC, MANY_TOPIC, SMALL_TOPIC, START, Job, Measured
from .place import ROWS, SparkPlace, make_rows

FORMS: Final = ("triolog", "kafka")
START_NAME: Final = f"{START} {FORMS[0]}"
"""With either form it is the same job."""
TOPIC: Final = "eight-partitions"
PARTITIONS: Final = 8
MANY_PARTITIONS: Final = 200
SMALL_RECORDS: Final = 100
LATENCY_RECORDS: Final = 40
ROUNDS: Final = 3
JOB_TIMEOUT_S: Final = 900
DRIVER: Final = ("driver java", "driver python")
PARTS: Final = (*DRIVER, "executors java", "executors python", "server")


class JobError(Exception):
    """A measured job failed; the message has the end of what it wrote."""


@attrs.frozen
class Goal:
    """A ratio of ours over Kafka's: the job in which it is measured, the value that is compared, and the bound."""

    name: str
    kind: str
    value: Callable[[Measured], float]
    bound: float


GOALS: Final = (
    Goal("CPU of a batch read", "batch", lambda found: sum(found.cpu_s.values()), 0.6),
    Goal("CPU of the driver of a batch read", "batch", lambda found: sum(found.cpu_s.get(part, 0.0) for part in DRIVER), 1.0),
    Goal("CPU of a stream under AvailableNow", "available-now", lambda found: sum(found.cpu_s.values()), 0.75),
    Goal("time of a stream of one partition", "small", lambda found: found.clock_s["first batch of a stream"], 1.0),
    Goal("time to count 200 partitions of 100 records", "small", lambda found: found.clock_s["many partitions"], 0.1),
    Goal("latency p95 at two records a second", "small", lambda found: found.clock_s["latency p95"], 0.5),
)

Samples = Mapping[str, Sequence[Measured]]
"""By kind and form, as in `batch triolog`."""


def beside_kafka(place: SparkPlace) -> RowResult:
    """Measure batches, streams, many partitions and latency with both sources in turn."""
    title = "beside Spark's own Kafka source"
    try:
        jars = kafka_source.jars()
    except PeerMissingError as exc:
        return RowResult(title, [absent(goal.name, str(exc), at_most(goal.bound, "x")) for goal in GOALS])
    rows = place.scale.count(ROWS)
    each = rows // PARTITIONS
    place.fill(TOPIC, PARTITIONS, itertools.chain.from_iterable(make_rows(each, 100) for _ in range(PARTITIONS)))
    place.fill(SMALL_TOPIC, 1, make_rows(SMALL_RECORDS, 100))
    many = itertools.chain.from_iterable(make_rows(SMALL_RECORDS, 100) for _ in range(MANY_PARTITIONS))
    place.fill(MANY_TOPIC, MANY_PARTITIONS, many)
    place.create(LATENCY_TOPIC)
    folder = place.directory / "cluster"
    folder.mkdir()
    with standalone_cluster(folder, "", os.environ) as cluster:
        samples = _measure(place, cluster, jars)
    notes = (
        f"{rows:,} records with a key of 8 bytes and a value of 100, {PARTITIONS} partitions, two workers of a core, to noop.",
        "CPU of the driver, the executors and the server, with the start of driver and executors.",
        "SPARK_HOME is that of `triolog spark home`.",
        "Times on the clock are of a driver that has run a stream; that of a stream is the median of three.",
    )
    return RowResult(title, [*goal_lines(samples), *lines_without_start(samples), *_profile(samples)], notes)


def goal_lines(samples: Samples) -> list[Line]:
    """Return the goals with the measured ratios, round by round."""
    lines = []
    for goal in GOALS:
        ours, theirs = ([goal.value(each) for each in samples[f"{goal.kind} {form}"]] for form in FORMS)
        note = f"{statistics.median(ours):.3g} s beside {statistics.median(theirs):.3g} s"
        lines.append(ratio(goal.name, ours, theirs, at_most(goal.bound, "x"), note))
    return lines


def lines_without_start(samples: Samples) -> list[Line]:
    """Return the ratios of the CPU times without those of a job that reads nothing."""
    start = statistics.median(sum(each.cpu_s.values()) for each in samples[START_NAME])
    lines = []
    for kind in ("batch", "available-now"):
        ours, theirs = ([sum(each.cpu_s.values()) - start for each in samples[f"{kind} {form}"]] for form in FORMS)
        lines.append(
            Line(f"CPU without the start, {kind}", "x", [one / other for one, other in zip(ours, theirs, strict=True)])
        )
    return lines


def _profile(samples: Samples) -> list[Line]:
    """Return the parts of the CPU times."""
    return [
        Line(f"{name}, {part}", "CPU-s", [each.cpu_s.get(part, 0.0) for each in measured])
        for name, measured in samples.items()
        if not name.startswith("small")
        for part in PARTS
    ]


def _measure(place: SparkPlace, cluster: Cluster, jars: str) -> Samples:
    names = (START_NAME, *(f"{kind} {form}" for kind in KINDS for form in FORMS))
    samples: dict[str, list[Measured]] = {name: [] for name in names}
    rounds = min(ROUNDS, place.scale.rounds)
    for number in range(rounds):
        for name in list(samples)[:: -1 if number % 2 else 1]:
            place.say(f"{name}, round {number + 1} of {rounds}")
            kind, form = name.split()
            folder = place.directory / f"{kind}-{form}-{number}"
            job = Job(
                kind=kind,
                form=form,
                master=cluster.master,
                servers=place.servers if form == "triolog" else place.server.kafka,
                native=place.server.address,
                topic=TOPIC,
                folder=str(folder),
                jars=jars,
                latency_records=place.scale.count(LATENCY_RECORDS, 5),
                workers=tuple(worker.pid for worker in cluster.workers),
                server=place.server.pid,
            )
            samples[name].append(_run(job, folder))
    return samples


def _run(job: Job, folder: Path) -> Measured:
    folder.mkdir()
    command = [sys.executable, "-m", "triolog.tools.spark.bench.kafka_job", json.dumps(attrs.asdict(job))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)
    if done.returncode:
        raise JobError(f"{job.kind} with {job.form}: {done.stderr.strip()[-1000:]}")
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))
