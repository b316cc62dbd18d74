"""Data directories that Apache Kafka wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).resolve().parents[1] / "data" / "kafka-4.1.0"
