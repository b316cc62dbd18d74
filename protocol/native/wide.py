"""Requests of many entries, read in steps: others may have their turn in between.

What is read here lies in the body as a tuple, which msgpack never yields, and is taken over by the request's `from_body`. What
is wrong otherwise is left to `from_body` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final

from .. import limits
from . import fields
from .explain import ExplainPartition, ExplainRequest
from .fetch import FetchPartition, FetchRequest
from .fields import Body, FieldError
from .groups import CommitOffsetsRequest, CommittedPartition, FetchOffsetsRequest, OffsetsPartition
from .leases import LeasePartition, LeaseSegmentsRequest
from .lookups import OffsetsForTimesPartition, OffsetsForTimesRequest
from .messages import RequestMessage, checked_request, decode_request
from .produce import PlainRecord, ProducePartition, ProduceRequest, read_headers, read_plain_record
from .splits import SplitPointsPartition, SplitPointsRequest
from .stages import CommitStageRequest, StagedPartition, StagedTask, StagePartition, StageRequest
from .topic_changes import (
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    NewPartitions,
)
from .topics import CreateTopicsRequest, NewTopic

Steps = Generator[None, None, None]
Inner = Callable[[Body], Steps]

ENTRIES_PER_PAUSE: Final = 64
"""At 3 us each."""
RECORDS_PER_PAUSE: Final = 256
VALUES_PER_ENTRY: Final = 16
"""Values of an entry's own array or map that take as long as an entry."""


def decode_steps(api: str, version: int, body: Body) -> Generator[None, None, RequestMessage]:
    """`messages.decode_request` in steps. The body is used up."""
    request = checked_request(api, version, body)
    if request in ENTRIES:
        key, decode, inner = ENTRIES[request]
        try:
            yield from _entries(body, key, decode, inner)
        except FieldError as exc:
            raise exc.within(api) from None
    return decode_request(api, version, body)


def _entries(body: Body, key: str, decode: Callable[[Body], Any], inner: Inner | None = None) -> Steps:
    """Reads what `fields.entries` would read."""
    values = body.get(key)
    if type(values) is not list or len(values) > limits.MAX_PARTITIONS_PER_REQUEST:
        return
    read: list[Any] = []
    steps = 0
    try:
        for index, entry in enumerate(values):
            if type(entry) is not dict:
                raise fields.unexpected("", entry, "map")
            steps += 1 + sum(len(each) for each in entry.values() if type(each) in (list, dict)) // VALUES_PER_ENTRY
            if inner is not None:
                yield from inner(entry)
            read.append(decode(entry))
            values[index] = None  # so that there is not much to give back at the end
            if steps >= ENTRIES_PER_PAUSE:
                steps = 0
                yield
    except FieldError as exc:
        raise exc.within(f"{key}[{len(read)}]") from None
    body[key] = tuple(read)


def _plain_records(entry: Body) -> Steps:
    """Reads what `produce.read_plain_records` would read."""
    values = entry.get("records")
    if type(values) is not list:
        return
    records: list[PlainRecord] = []
    steps = 0
    try:
        for index, value in enumerate(values):
            if type(value) is list and len(value) == 4 and type(value[3]) is list:
                steps += len(value[3])
                if len(value[3]) > RECORDS_PER_PAUSE:
                    yield from _headers(value)
            records.append(read_plain_record(value))
            values[index] = None
            steps += 1
            if steps >= RECORDS_PER_PAUSE:
                steps = 0
                yield
    except FieldError as exc:
        raise exc.within(f"records[{len(records)}]") from None
    entry["records"] = tuple(records)


def _headers(record: list[Any]) -> Steps:
    values = record[3]
    headers: list[tuple[str, bytes | None]] = []
    for start in range(0, len(values), RECORDS_PER_PAUSE):
        headers += read_headers(values[start : start + RECORDS_PER_PAUSE], start)
        values[start : start + RECORDS_PER_PAUSE] = [None] * len(values[start : start + RECORDS_PER_PAUSE])
        yield
    record[3] = tuple(headers)


ENTRIES: Final[Mapping[type[RequestMessage], tuple[str, Callable[[Body], Any], Inner | None]]] = {
    ProduceRequest: ("partitions", ProducePartition.from_body, _plain_records),
    FetchRequest: ("partitions", FetchPartition.from_body, None),
    OffsetsForTimesRequest: ("partitions", OffsetsForTimesPartition.from_body, None),
    ExplainRequest: ("partitions", ExplainPartition.from_body, None),
    CreateTopicsRequest: ("topics", NewTopic.from_body, None),
    CreatePartitionsRequest: ("topics", NewPartitions.from_body, None),
    AlterConfigsRequest: ("topics", ConfigChange.from_body, None),
    DeleteRecordsRequest: ("partitions", DeleteRecordsPartition.from_body, None),
    CommitOffsetsRequest: ("partitions", CommittedPartition.from_body, None),
    FetchOffsetsRequest: ("partitions", OffsetsPartition.from_body, None),
    SplitPointsRequest: ("partitions", SplitPointsPartition.from_body, None),
    LeaseSegmentsRequest: ("partitions", LeasePartition.from_body, None),
    StageRequest: ("partitions", StagePartition.from_body, None),
    CommitStageRequest: (
        "tasks",
        StagedTask.from_body,
        partial(_entries, key="partitions", decode=StagedPartition.from_body),
    ),
}
"""The array of each request that takes long to read: its key, what reads an entry, and what is read in steps inside one."""
