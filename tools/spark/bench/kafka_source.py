"""The jars of Spark's own Kafka source and sink. Maven resolves `kafka_source.xml` once; later runs ask nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...bench.kafka.jars import kafka_jars

POM: Final = Path(__file__).with_suffix(".xml")
MISSING: Final = "the session has no jars of Spark's Kafka source; install a JDK (17 or newer) and Maven, and be online once"


def jars() -> str:
    """Return the jars, separated by commas, as `spark.jars` takes them. Raises PeerMissingError."""
    return kafka_jars(pom=POM).replace(":", ",")
