"""A `triolog forward` in a process of its own, and what is seen of such a process from outside: how fast records come upstream,
and what it takes for that."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import attrs

from ....protocol.extras import how_to_install
from ...demo.processes import COMMAND
from ..measuring.child import LoadFailedError
from ..measuring.server import cpu_s, memory_mib
from ..measuring.wire import Address
from .brokers import JVM_FLAGS, QUIET
from .jars import MIRROR_MAKER, ended_after, kafka_jars

if TYPE_CHECKING:
    from confluent_kafka import Consumer

VALUE_BYTES: Final = 1_000
POLL_S: Final = 0.05
CALL_S: Final = 5.0
STALLED_S: Final = 120.0
"""Without a record more upstream, and the measure has failed."""
WARM_SHARE: Final = 1 / 3
"""Of the records, before the clock starts: processes start, stretches grow, a JVM compiles."""
END_S: Final = 30.0
MIRROR_MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
HEAP: Final = ("-Xms256M", "-Xmx2G")
"""As in connect-mirror-maker.sh."""
FLAGS: Final = (*HEAP, *(flag for flag in JVM_FLAGS if not flag.startswith(("-Xms", "-Xmx"))))
MIRROR_CONFIG: Final = {
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "plugin.discovery": "service_load",
}
"""What one node needs, and the faster start; the rest are defaults."""


@attrs.frozen(kw_only=True)
class CaughtUp:
    """The throughput, CPU time and peak memory of forwarding a backlog upstream."""

    mb_s: float
    """Values, from when a third of them was there until all were."""
    cpu_s_gb: float
    """Of the whole process, with its start."""
    peak_mib: float


def missing() -> str:
    """Say why forwarding cannot be measured here; empty when it can."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return f"forwarding needs confluent_kafka: {how_to_install('forward')}"
    return ""


@contextmanager
def forwarding(
    directory: str, source: Address, to: str, *, topic: str, target: str, options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one link for the time of the block, from the beginning of the topic. Its state is elsewhere: socket names must
    be short."""
    with TemporaryDirectory() as state_dir:
        command = [*COMMAND, "forward", "--server", f"{source[0]}:{source[1]}", "--to", to, "--topics", topic]
        command += ["--target", target, "--link", target, "--node", "bench", "--state-dir", state_dir, *options]
        with running([*command, "--log-level", "warning"], Path(directory, f"{target}.log")) as process:
            yield process


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process for the time of the block; a failure has the end of its log."""
    with ended_after(command, log, END_S) as process:
        try:
            yield process
        except LoadFailedError as exc:
            raise LoadFailedError(f"{exc}: {log.read_text(encoding='utf-8', errors='replace')[-1000:]}") from exc


def watch(process: subprocess.Popen[bytes], to: str, target: str, records: int) -> CaughtUp:
    """Wait until so many records can be read upstream. Raises LoadFailedError when they do not come."""
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
                raise LoadFailedError(f"the process that sends records to {target} ended with {process.returncode}")
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


def _end_offset(consumer: Consumer, topic: str) -> int:
    """Return the end offset for readers of committed records; 0 while the topic does not exist."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        offsets = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S)
    except KafkaException:
        return 0
    return 0 if offsets is None else int(offsets[1])


@contextmanager
def mirroring(directory: str, source: str, to: str, *, topic: str, alias: str) -> Iterator[subprocess.Popen[bytes]]:
    """For the time of the block `topic` of the Kafka listener `source` is copied to the topic `copied_name` says, from its
    beginning. Raises PeerMissingError."""
    jars = kafka_jars(pom=MIRROR_MAKER)
    config = {
        "clusters": f"{alias}, upstream",
        f"{alias}.bootstrap.servers": source,
        "upstream.bootstrap.servers": to,
        f"{alias}->upstream.enabled": "true",
        f"{alias}->upstream.topics": topic,
        **MIRROR_CONFIG,
    }
    properties = Path(directory, f"{alias}.properties")
    properties.write_text("".join(f"{key} = {value}\n" for key, value in config.items()), encoding="utf-8")
    command = ["java", *FLAGS, QUIET, "-cp", jars, MIRROR_MAIN, str(properties)]
    with running(command, Path(directory, f"{alias}.log")) as process:
        yield process


def copied_name(topic: str, alias: str) -> str:
    """Return the name of the copy."""
    return f"{alias}.{topic}"
