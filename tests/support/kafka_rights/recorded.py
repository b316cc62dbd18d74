"""What Apache Kafka 4.3.1 answers in a world of rights, and where triolog says something else, on purpose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from .askers import askers
from .world import Told, question

FILE: Final = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "rights.json"


@attrs.frozen
class Deviation:
    ours: dict[str, str]
    why: str


_UNKNOWN_ID: Final = Deviation(
    {"responses[0].partitions[0].error_code": "UNKNOWN_TOPIC_ID"}, "Kafka answers UNKNOWN_SERVER_ERROR for the whole request"
)
DEVIATIONS: Final = {f"{api} v1 without READ TOPIC, about nobody": _UNKNOWN_ID for api in ("ShareFetch", "ShareAcknowledge")}


def comparable(answers: Mapping[str, Told]) -> dict[str, dict[str, str]]:
    """The errors of all that is refused or hidden, by question."""
    asked = {question(asker, of) for asker in askers() if asker.missing or asker.hidden for of in asker.asks_about}
    return {name: answer.errors for name, answer in answers.items() if name in asked}


def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text())
    return found


def record(answers: Mapping[str, dict[str, str]]) -> None:
    FILE.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
