"""Subscriptions to clients' metrics, configured and described by plain values; scripts that two brokers are compared by."""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.errors import ErrorCode

from tests.support.kafka_admin import APPEND, DELETE, SET, SUBTRACT, alter_incrementally, describe
from tests.support.kafka_wire import KafkaWire, ask

CLIENT_METRICS: Final = 16


def altering(name: str, *operations: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    return alter_incrementally((CLIENT_METRICS, name, operations), validate_only=validate_only)


def setting(name: str, **values: str) -> Any:
    return altering(name, *((key.replace("_", "."), SET, value) for key, value in values.items()))


def describing(*names: str, keys: list[str] | None = None) -> Any:
    return describe(*((CLIENT_METRICS, name) for name in names), keys=keys)


def altered(answer: Any) -> list[str]:
    return [ErrorCode(each.error_code).name for each in answer.responses]


def described(answer: Any) -> Any:
    """Of each resource its error, or its keys with values and sources; of a list of resources their names."""
    if hasattr(answer, "config_resources"):
        return sorted((each.resource_type, each.resource_name) for each in answer.config_resources)
    return [
        (ErrorCode(each.error_code).name, sorted((entry.name, entry.value, entry.config_source) for entry in each.configs))
        for each in answer.results
    ]


def is_known(client: KafkaWire) -> bool:
    """Whether the last of ALTERATIONS has reached who answers."""
    answer = client.call(ask("ListConfigResources", resource_types=[CLIENT_METRICS]), 1)
    return any(each.resource_name == "last" for each in answer.config_resources)


ALTERATIONS: Final = [
    setting("all", metrics="*", interval_ms="1000"),
    setting("some", metrics="org.apache.kafka.producer.,x", match="client_id=a.*,client_software_name=b"),
    altering("some", ("metrics", APPEND, "x.")),
    altering("some", ("metrics", SUBTRACT, "x")),
    altering("some", ("interval.ms", APPEND, "1")),
    altering("some", ("match", DELETE, None)),
    setting("wrong", interval_ms="99"),
    setting("wrong", interval_ms="100"),
    setting("wrong", interval_ms="3600001"),
    setting("wrong", interval_ms="x"),
    setting("wrong", no_such="1"),
    setting("wrong", match="client_id"),
    setting("wrong", match="no_such=a"),
    setting("wrong", match="client_id=("),
    setting("wrong", match="client_id=a=b"),
    setting("wrong", metrics="a,a"),
    setting("wrong", metrics="a,,b"),
    setting("empty", metrics=""),
    setting("", metrics="*"),
    altering("validated", ("metrics", SET, "*"), validate_only=True),
    altering("all", ("metrics", DELETE, None)),
    altering("all", ("interval.ms", DELETE, None)),
    setting("last", metrics="*"),
]
DESCRIPTIONS: Final = [
    (describing("some"), 4),
    (describing("all", "nobody", "empty", "wrong"), 4),
    (describing("some", keys=["metrics", "no.such"]), 4),
    (describing(""), 4),
    (ask("ListConfigResources", resource_types=[CLIENT_METRICS]), 1),
    (ask("ListConfigResources"), 0),
]
