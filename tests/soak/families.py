"""How a client process of each family is run; those of Go and Java are built when they are needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from tests.clients import external_programs

PYTHON_MODULES: Final = {
    "confluent": "confluent",
    "kafka-python": "kafka_python",
    "aiokafka": "aio_kafka",
    "native": "native",
    "blocking": "blocking",
}
FAMILIES: Final = (*PYTHON_MODULES, "franz-go", "java")


def command_of(family: str) -> Sequence[str]:
    """What its task is the last argument of. Raises ProgramUnavailableError where a language is not here."""
    match family:
        case "franz-go":
            return external_programs.soaking_go()
        case "java":
            return external_programs.soaking_java()
        case _:
            return sys.executable, "-m", f"tests.soak.clients.{PYTHON_MODULES[family]}"


def installed(families: Sequence[str] = FAMILIES) -> dict[str, Sequence[str]]:
    """The commands of those that are here."""
    commands = {}
    for family in families:
        try:
            commands[family] = command_of(family)
        except external_programs.ProgramUnavailableError:
            continue
    return commands
