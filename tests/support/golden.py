"""Data directories that Apache Kafka wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_DATA: Final = Path(__file__).resolve().parents[1] / "data"
GOLDEN: Final = _DATA / "kafka-4.1.0"
KAFKA_4_3: Final = _DATA / "kafka-4.3.1"
"""Made by `python -m tests.kafka.write_golden`."""
