"""Keywords of producers, consumers and appenders: those of the settings, field by field, and no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, get_type_hints

import attrs
import pytest
from triolog.protocol.types import CompressionType, Isolation
from triolog.tools.client import options
from triolog.tools.client.appender import Appender
from triolog.tools.client.blocking import BlockingAppender, BlockingConsumer, BlockingProducer
from triolog.tools.client.config import ConsumerConfig, ProducerConfig
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.options import ConsumerOptions, ProducerOptions
from triolog.tools.client.producer import open_producer

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
