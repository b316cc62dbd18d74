"""What is no record is named, with its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from triolog.protocol.errors import CorruptRecordError, InvalidRecordError
from triolog.server.embedded import MEMORY, EmbeddedBroker, open_broker
from triolog.server.embedded.records import check_records

T = "topic"
GOOD = (None, b"k", b"v", ())

WRONG = [
    ("text", "records are str 'text', expected a sequence"),
    (5, "records are int, expected a sequence"),
    (["text"], "record 0: it is str 'text', expected bytes"),
    ([b"v", 5], "record 1: it is int"),
    ([GOOD, (None, b"k", b"v")], "record 1: it is a tuple of 3"),
    ([("now", b"k", b"v", ())], "record 0: its timestamp is str 'now', expected int"),
    ([(None, "k", b"v", ())], "record 0: its key is str 'k', expected bytes"),
    ([(None, b"k", {}, ())], "record 0: its value is dict, expected bytes"),
    ([(None, b"k", b"v", None)], "record 0: its headers are NoneType"),
    ([(None, b"k", b"v", [b"h"])], "record 0: a header is bytes"),
    ([(None, b"k", b"v", [("h", 5)])], r"record 0: a header is \(str 'h', int\)"),
    (["x" * 100], "record 0: it is str 'xxxxxxxxxxxxxxxxxxxx'..., expected bytes"),
]
"""What is given, and what is said."""


async def append_in_transaction(broker: EmbeddedBroker, topic: str, records: Any) -> None:
    async with broker.transaction("id") as transaction:
        await transaction.append(topic, records)


@pytest.mark.parametrize("append", [EmbeddedBroker.append, EmbeddedBroker.append_by_key, append_in_transaction])
async def test_what_is_no_record_is_named_and_nothing_is_stored(append: Callable[..., Awaitable[Any]]) -> None:
    async with open_broker(MEMORY, topics={T: 1}) as broker:
        for records, said in WRONG:
            with pytest.raises(TypeError, match=f"^topic(:|,) {said}"):
                await append(broker, T, records)
        with pytest.raises(InvalidRecordError, match="topic, record 1: timestamp -2 is neither"):
            await append(broker, T, [GOOD, (-2, b"k", b"v", ())])
        assert await broker.fetch(T) == []
        await append(broker, T, [GOOD, None, b"v"])


def test_what_is_a_record_or_batches_is_not_complained_about() -> None:
    check_records(T, [GOOD, None, b"", bytearray(b"v"), (-1, None, memoryview(b""), [("h", None), ["h", b"x"]])])
    check_records(T, b"batches")


async def test_batches_that_are_none_are_refused_as_ever() -> None:
    async with open_broker(MEMORY, topics={T: 1}) as broker:
        with pytest.raises(CorruptRecordError):
            await broker.append(T, b"rubbish")
