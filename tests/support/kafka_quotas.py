"""Client quotas asked for by plain values, and scripts of requests that two brokers are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from triolog.protocol.errors import ErrorCode

from tests.support.kafka_admin import create_topics, delete_topics, more_partitions, new_topic
from tests.support.kafka_wire import ask

EXACT, DEFAULT, ANY = range(3)
"""Types of matches."""
PRODUCED, FETCHED, PERCENT, CONNECTIONS, MUTATIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
    "controller_mutation_rate",
)
Parts = Sequence[tuple[str, str | None]]
"""An entity."""
Values = Sequence[tuple[str, float | None]]
"""(key, value); None removes it."""
Components = Sequence[tuple[str, int, str | None]]

USER: Final[Parts] = [("user", "u")]
BOTH: Final[Parts] = [("user", "u"), ("client-id", "c")]
TWICE: Final[Parts] = [("user", "twice")]
ADDRESS: Final[Parts] = [("ip", "1.2.3.4")]


def altering(*entries: tuple[Parts, Values], validate_only: bool = False) -> Any:
    asked = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values],
        }
        for parts, values in entries
    ]
    return ask("AlterClientQuotas", entries=asked, validate_only=validate_only)


def asking(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = [{"entity_type": kind, "match_type": match_type, "match": match} for kind, match_type, match in components]
    return ask("DescribeClientQuotas", components=asked, strict=strict)


def altered(answer: Any) -> dict[frozenset[tuple[str, str | None]], str]:
    """The error of each entity."""
    return {
        frozenset((each.entity_type, each.entity_name) for each in entry.entity): ErrorCode(entry.error_code).name
        for entry in answer.entries
    }


def described(answer: Any) -> Any:
    """The error, and the quotas by entity."""
    entries = answer.entries and {
        frozenset((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }
    return ErrorCode(answer.error_code).name, entries or None


def mutations(*, is_strict: bool) -> list[tuple[Any, int]]:
    """Requests with the versions in which they are made, that make topics, add to one and delete it; the first one takes more
    than a quota of 0.1 partitions a second gives at once. `is_strict`: in versions in which clients know the error."""
    topic = "strict" if is_strict else "permissive"
    create, grow, delete = (6, 3, 5) if is_strict else (5, 2, 4)
    return [
        (create_topics(new_topic(topic, 2, -1)), create),
        (create_topics(new_topic(f"{topic}-2", 1, -1)), create),
        (more_partitions((topic, 3)), grow),
        (delete_topics(topic), delete),
    ]


def mutated(answer: Any) -> list[str]:
    """Names of what became of each topic."""
    results = next(getattr(answer, name) for name in ("topics", "results", "responses") if hasattr(answer, name))
    return [ErrorCode(each.error_code).name for each in results]
