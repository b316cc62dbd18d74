"""A `triolog forward` in a process of its own, and what is seen of such a process from outside: how fast records come upstream,
and what it takes for that."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import attrs

from ..loads.produce import fill
from ..measuring.child import LoadFailedError, run_load
from ..measuring.measure import Line, Target
from ..measuring.process import cpu_s, memory_mib
from ..measuring.scale import Scale
from ..measuring.server import COMMAND, Server
from ..measuring.wire import Address
from ..peers.peer import ended_after

if TYPE_CHECKING:
    from confluent_kafka import Consumer

VALUE_BYTES: Final = 1_000
BATCH_RECORDS: Final = 100
POLL_S: Final = 0.05
CALL_S: Final = 5.0
STALLED_S: Final = 120.0
"""Without a record more upstream, and the measure has failed."""
WARM_SHARE: Final = 1 / 3
"""Of the records, before the clock starts: processes start, stretches grow, a JVM compiles."""
END_S: Final = 30.0


@attrs.frozen(kw_only=True)
class CaughtUp:
    """What it took to bring a backlog upstream."""

    mb_s: float
    """Values, from when a third of them was there until all were."""
    cpu_s_gb: float
    """Of the whole process, with its start."""
    peak_mib: float


def missing() -> str:
    """Why forwarding cannot be measured here; empty when it can."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "forwarding needs confluent_kafka: pip install 'triolog[forward]'"
    return ""


@contextmanager
def forwarding(
    directory: str, source: Address, to: str, *, topic: str, target: str, is_child: bool = False, options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """One link for the time of the block, from the beginning of the topic. `is_child`: as a server starts one. Its state is
    elsewhere: the name of a socket must be short."""
    with TemporaryDirectory() as state_dir:
        command = _command(source, to, topic, target, state_dir, options)
        command += ["--parent", str(os.getpid())] if is_child else []
        with running(command, Path(directory, f"{target}.log")) as process:
            yield process


def _command(source: Address, to: str, topic: str, target: str, state_dir: str, options: Sequence[str]) -> list[str]:
    command = [*COMMAND, "forward", "--server", f"{source[0]}:{source[1]}", "--to", to, "--topics", topic, "--target", target]
    return [*command, "--link", target, "--node", "bench", "--state-dir", state_dir, "--log-level", "warning", *options]


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the time of the block; its failure has what it wrote."""
    with ended_after(command, log, END_S) as process:
        try:
            yield process
        except LoadFailedError as exc:
            raise LoadFailedError(f"{exc}: {log.read_text(encoding='utf-8', errors='replace')[-1000:]}") from exc


def watch(process: subprocess.Popen[bytes], to: str, target: str, records: int) -> CaughtUp:
    """Until so many records can be read upstream. Raises LoadFailedError when they do not come."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": to,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
    )
    try:
        began = first = (time.monotonic(), 0)
        last = began
        while last[1] < records:
            if process.poll() is not None:
                raise LoadFailedError(f"the process that brings records to {target} has ended with {process.returncode}")
            if time.monotonic() - last[0] > STALLED_S:
                raise LoadFailedError(f"{target} has had {last[1]} of {records} records for {STALLED_S:g} s")
            time.sleep(POLL_S)
            end = _end_offset(consumer, target)
            if end > last[1]:
                last = (time.monotonic(), end)
            if first is began and records * WARM_SHARE <= end < records:
                first = last
        return CaughtUp(
            mb_s=(records - first[1]) * VALUE_BYTES / 1e6 / (last[0] - first[0]),
            cpu_s_gb=cpu_s(process.pid) / (records * VALUE_BYTES / 1e9),
            peak_mib=memory_mib(process.pid)["VmHWM"],
        )
    finally:
        consumer.close()


def caught_up_lines(
    who: str, samples: Sequence[CaughtUp], targets: tuple[Target | None, Target | None, Target | None]
) -> list[Line]:
    """Rate, processor time and memory, each with its target."""
    rate, processor, memory = targets
    return [
        Line(f"rate, {who}", "MB/s", [each.mb_s for each in samples], rate),
        Line(f"processor, {who}", "s/GB", [each.cpu_s_gb for each in samples], processor),
        Line(f"peak of resident memory, {who}", "MiB", [each.peak_mib for each in samples], memory),
    ]


def folder(directory: str, name: str) -> str:
    """A new one for a server."""
    path = Path(directory, name)
    path.mkdir()
    return str(path)


def backlog(scale: Scale, full: int) -> int:
    """Records of a backlog: whole batches."""
    return scale.count(full // BATCH_RECORDS) * BATCH_RECORDS


def fill_backlog(server: Server, topic: str, records: int, config: Mapping[str, str] | None = None) -> None:
    """Append it to a new topic of one partition."""
    shape = {"partitions": 1, "batches": records // BATCH_RECORDS, "records": BATCH_RECORDS, "value_bytes": VALUE_BYTES}
    run_load(fill, address=server.address, topic=topic, config=config, **shape)


def _end_offset(consumer: Consumer, topic: str) -> int:
    """Of what readers of committed records see; 0 while there is no topic."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        offsets = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S)
    except KafkaException:
        return 0
    return 0 if offsets is None else int(offsets[1])
