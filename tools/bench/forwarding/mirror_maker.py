"""MirrorMaker 2 of Apache Kafka copies a topic from one broker to another: as it comes, with the heap and the JVM flags of
its own start script."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..kafka.brokers import JVM_FLAGS, QUIET
from ..kafka.jars import MIRROR_MAKER, kafka_jars
from .forwarder import running

MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
HEAP: Final = ("-Xms256M", "-Xmx2G")
"""As in connect-mirror-maker.sh."""
FLAGS: Final = (*HEAP, *(flag for flag in JVM_FLAGS if not flag.startswith(("-Xms", "-Xmx"))))
CONFIG: Final = {
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
        **CONFIG,
    }
    properties = Path(directory, f"{alias}.properties")
    properties.write_text("".join(f"{key} = {value}\n" for key, value in config.items()), encoding="utf-8")
    command = ["java", *FLAGS, QUIET, "-cp", jars, MAIN, str(properties)]
    with running(command, Path(directory, f"{alias}.log")) as process:
        yield process


def copied_name(topic: str, alias: str) -> str:
    """What the copy is called."""
    return f"{alias}.{topic}"
