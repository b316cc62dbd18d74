"""Requests read in steps are what they are when they are read at once."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.limits import MAX_PARTITIONS_PER_REQUEST
from triolog.protocol.native import messages
from triolog.protocol.native.calls.produce import RECORDS_PER_PAUSE

from tests.support.in_steps import finished
from tests.support.native_messages import REQUESTS

PLAIN: Final = [None, b"k", b"v", [["h", b""]]]


def at_once(api: str, body: Any) -> object:
    """The message, or how it is refused."""
    try:
        return messages.decode_request(api, messages.VERSION, msgpack.unpackb(msgpack.packb(body)))
    except RequestError as exc:
        return exc.code, exc.message


def in_steps(api: str, body: Any) -> object:
    """What `at_once` says, read in steps."""
    try:
        return finished(messages.decode_steps(api, messages.VERSION, msgpack.unpackb(msgpack.packb(body))))
    except RequestError as exc:
        return exc.code, exc.message


def pauses(api: str, body: Any) -> int:
    return sum(1 for _ in messages.decode_steps(api, messages.VERSION, body))


@pytest.mark.parametrize(
    "body",
    [
        {"partitions": [{"topic": "t", "partition": 0, "records": [PLAIN] * 700 + [wrong]}]}
        for wrong in (7, [], [None, 1, b""], [None, b"", b"", [["h", 1]]], [None, b"", b"", [["h", b""]] * 900 + [["h"]]])
    ]
    + [
        {"partitions": [{"topic": "t", "partition": 0, "records": []}] * 99 + [wrong]}
        for wrong in (1, {}, {"topic": "t", "partition": 0, "records": 1}, {"topic": "t", "more": 1})
    ]
    + [{"partitions": 1}, {"partitions": [1] * (MAX_PARTITIONS_PER_REQUEST + 1)}, {"unknown": 1}, {}],
)
def test_a_wrong_entry_is_refused_by_its_place(body: Any) -> None:
    refused = at_once("produce", body)
    assert isinstance(refused, tuple)
    assert in_steps("produce", body) == refused


def test_a_wrong_entry_of_a_wrong_task_is_refused_by_its_place() -> None:
    tasks = [{"task": str(number), "partitions": []} for number in range(99)]
    tasks.append({"task": "t", "partitions": [{"topic": "t"}]})
    body = {"application": "a", "version": 1, "tasks": tasks}
    refused = at_once("commit_stage", body)
    assert "commit_stage.tasks[99].partitions[0]" in str(refused)
    assert in_steps("commit_stage", body) == refused


def test_a_plain_record_of_many_headers_is_read_in_steps() -> None:
    record = [None, b"k", b"v", [[f"{number}", b""] for number in range(20_000)]]
    body = {"partitions": [{"topic": "t", "partition": 0, "records": [record]}]}
    assert in_steps("produce", body) == at_once("produce", body)
    assert pauses("produce", body) >= 20_000 // RECORDS_PER_PAUSE


def test_long_configurations_count_as_many_entries() -> None:
    config = {f"key-{number}": "value" for number in range(1000)}
    body = {"topics": [{"name": f"{number}", "partitions": 1, "config": config} for number in range(50)]}
    assert pauses("create_topics", body) >= 25


@pytest.mark.parametrize("api", REQUESTS)
@given(data=st.data())
def test_many_entries_pause_in_every_request_that_has_them(api: str, data: st.DataObject) -> None:
    body = msgpack.unpackb(msgpack.packb(data.draw(REQUESTS[api]).to_body()))
    entries = [key for key, value in body.items() if type(value) is list and value and type(value[0]) is dict]
    for key in entries:
        body[key] = [copy.deepcopy(body[key][0]) for _ in range(200)]
    assert pauses(api, body) >= len(entries) * (200 // messages.ENTRIES_PER_PAUSE)


def test_many_entries_inside_one_entry_pause() -> None:
    partitions = [{"topic": "t", "partition": number, "size_bytes": 1, "crc": 0} for number in range(5000)]
    body = {"application": "a", "version": 1, "tasks": [{"task": "t", "partitions": partitions}]}
    assert pauses("commit_stage", body) >= 5000 // messages.ENTRIES_PER_PAUSE
