"""The answer of a produce or a lookup without errors, written from numbers, is the answer that its message makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.connection import LISTED, PRODUCED, PartitionProduced, Request, TopicProduced, answer_buffers
from triolog.protocol.kafka.messages import records
from triolog.protocol.schema.primitives import COPIED_BYTES

PRODUCE = APIS[ApiKey.PRODUCE]
VERSIONS = range(PRODUCE.lowest_read, PRODUCE.highest + 1)
LIST_OFFSETS = APIS[ApiKey.LIST_OFFSETS]


def request(version: int, correlation_id: int = 7) -> Request:
    return Request(PRODUCE, version, correlation_id, "client", PRODUCE.request(), 100)


def message(topics: list[TopicProduced], throttle_time_ms: int = 0) -> records.ProduceResponse:
    return records.ProduceResponse(
        throttle_time_ms=throttle_time_ms,
        responses=[
            records.ProduceTopicResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    records.ProducePartitionResponse(
                        index=index,
                        base_offset=base_offset,
                        log_append_time_ms=log_append_time,
                        log_start_offset=log_start_offset,
                        record_errors=[],
                    )
                    for index, base_offset, log_append_time, log_start_offset in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )


def results() -> st.SearchStrategy[list[TopicProduced]]:
    offset = st.integers(-1, 2**63 - 1)
    partition: st.SearchStrategy[PartitionProduced] = st.tuples(st.integers(0, 2**31 - 1), offset, offset, offset)
    topic = st.tuples(st.text(max_size=249), st.binary(min_size=16, max_size=16), st.lists(partition, max_size=3))
    return st.lists(topic, max_size=3)


@given(st.sampled_from(VERSIONS), st.integers(-(2**31), 2**31 - 1), results(), st.integers(0, 2**31 - 1))
def test_it_is_what_the_message_makes(version: int, correlation_id: int, topics: list[TopicProduced], throttle_ms: int) -> None:
    asked = request(version, correlation_id)
    assert PRODUCED.buffers(asked, (throttle_ms, topics)) == answer_buffers(asked, message(topics, throttle_ms))


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 1000])
def test_so_it_is_for_any_number_of_partitions(count: int) -> None:
    topics: list[TopicProduced] = [("topic", bytes(16), [(number, number, -1, 0) for number in range(count)])]
    for asked in map(request, VERSIONS):
        buffers = PRODUCED.buffers(asked, (0, topics))
        assert buffers == answer_buffers(asked, message(topics)), asked
        assert len(buffers) == (2 if sum(map(len, buffers)) > COPIED_BYTES else 1), asked


@pytest.mark.parametrize(("count", "throttle_ms"), [(0, 0), (1, 250), (100, 0)])
def test_offsets_that_were_found_are_told_as_by_the_message(count: int, throttle_ms: int) -> None:
    rows = [(number, 1_700_000_000_000 + number, 2**40 + number, number - 1) for number in range(count)]
    partitions = [
        records.ListOffsetsPartitionResponse(
            partition_index=index, old_style_offsets=[], timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
        )
        for index, timestamp, offset, leader_epoch in rows
    ]
    topics = [records.ListOffsetsTopicResponse(name=name, partitions=partitions) for name in ("first", "second")]
    for version in range(1, LIST_OFFSETS.highest + 1):
        asked = Request(LIST_OFFSETS, version, 7, "client", LIST_OFFSETS.request(), 100)
        assert LISTED.buffers(asked, (throttle_ms, [("first", rows), ("second", rows)])) == answer_buffers(
            asked, records.ListOffsetsResponse(throttle_time_ms=throttle_ms, topics=topics)
        ), version
