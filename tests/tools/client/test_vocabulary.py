"""One vocabulary: calls, parameters and fields of brokers and clients; keywords are the settings, field by field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, get_type_hints

import attrs
import pytest
from triolog.protocol.native.messages import PartitionMetadata, TopicMetadata
from triolog.protocol.types import CompressionType, Isolation
from triolog.server.broker import PartitionDescription, TopicDescription
from triolog.server.embedded import EmbeddedBroker
from triolog.tools.client import options
from triolog.tools.client.admin import Admin
from triolog.tools.client.appender import Appender
from triolog.tools.client.blocking import BlockingAppender, BlockingConsumer, BlockingProducer
from triolog.tools.client.config import ConsumerConfig, ProducerConfig
from triolog.tools.client.connection import Client
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.log_calls import LogCalls
from triolog.tools.client.options import ConsumerOptions, ProducerOptions
from triolog.tools.client.producer import open_producer


def methods(cls: type) -> set[str]:
    return {name for name, each in vars(cls).items() if inspect.isfunction(each) and not name.startswith("_")}


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


SHARED = sorted(methods(LogCalls) & methods(EmbeddedBroker))


def test_the_calls_of_a_client_on_logs_are_those_of_a_broker() -> None:
    assert methods(LogCalls) - methods(EmbeddedBroker) == set()
    assert len(SHARED) > 9
    assert all(getattr(Client, name) is getattr(LogCalls, name) for name in SHARED)


@pytest.mark.parametrize("name", SHARED)
def test_a_call_has_the_same_parameters(name: str) -> None:
    assert parameters(getattr(LogCalls, name)) == parameters(getattr(EmbeddedBroker, name))


@pytest.mark.parametrize("name", ["alter_config", "create_partitions"])
def test_a_call_of_an_admin_has_the_same_parameters(name: str) -> None:
    assert parameters(getattr(Admin, name)) == parameters(getattr(EmbeddedBroker, name))


def fields(cls: Any) -> dict[str, str]:
    declared = {name: kind for base in reversed(cls.__mro__) for name, kind in inspect.get_annotations(base).items()}
    return {field.name: declared[field.name] for field in attrs.fields(cls)}


def test_a_topic_has_the_same_fields() -> None:
    """In the server's process its error is raised, and its end is known; its partitions are those of the process."""
    ours, theirs = fields(TopicDescription), fields(TopicMetadata)
    assert ours.keys() | {"error"} == theirs.keys()
    assert (ours["config"], ours["topic_id"]) == (theirs["config"], theirs["topic_id"].removesuffix(" | None"))
    partition = fields(PartitionDescription)
    assert partition.pop("log_end_offset") == "int"
    assert partition == fields(PartitionMetadata)


PAIRS = [(ProducerConfig, ProducerOptions), (ConsumerConfig, ConsumerOptions)]


def accepted(field: attrs.Attribute[Any], declared: Any) -> Any:
    """The type of a field, and where an enumeration converts what is given, that of its values."""
    kind = field.converter
    if kind is None:
        return declared
    assert isinstance(kind, type)
    assert issubclass(kind, Enum)
    return declared | {int: int, str: str}[type(next(iter(kind)).value)]


@pytest.mark.parametrize(("settings", "keywords"), PAIRS, ids=["producer", "consumer"])
def test_keywords_are_the_fields_of_the_settings(settings: Any, keywords: type) -> None:
    declared = get_type_hints(settings)
    fields = {field.name: accepted(field, declared[field.name]) for field in attrs.fields(settings)}
    assert get_type_hints(keywords) == fields
    assert keywords.__required_keys__ == frozenset()  # type: ignore[attr-defined]


TAKEN = {
    open_producer: "ProducerOptions",
    Appender: "ProducerOptions",
    BlockingProducer: "ProducerOptions",
    BlockingAppender: "ProducerOptions",
    open_consumer: "ConsumerOptions",
    BlockingConsumer: "ConsumerOptions",
}


@pytest.mark.parametrize("entry", TAKEN, ids=lambda entry: entry.__name__)
def test_every_entry_has_typed_keywords(entry: Callable[..., Any]) -> None:
    assert inspect.signature(entry).parameters["options"].annotation == f"Unpack[{TAKEN[entry]}]"


def test_keywords_take_the_place_of_the_settings() -> None:
    config = options.producer_config(ProducerConfig(acks=1, linger_ms=7), {"linger_ms": 0, "compression_type": 2})
    assert config == ProducerConfig(acks=1, linger_ms=0, compression_type=CompressionType.SNAPPY)
    assert options.consumer_config(None, {"isolation": "read_committed"}).isolation is Isolation.READ_COMMITTED
    with pytest.raises(TypeError, match="lingre_ms"):
        options.producer_config(None, {"lingre_ms": 0})  # type: ignore[typeddict-unknown-key]
