"""The answer of a produce without errors, written from numbers, is the answer that its message makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.connection import Request, answer_buffers
from triolog.protocol.kafka.messages.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse
from triolog.protocol.kafka.produce_answer import PartitionProduced, TopicProduced, produced
from triolog.protocol.schema.primitives import COPIED_BYTES

PRODUCE = APIS[ApiKey.PRODUCE]
VERSIONS = range(PRODUCE.lowest_read, PRODUCE.highest + 1)


def request(version: int, correlation_id: int = 7) -> Request:
    return Request(PRODUCE, version, correlation_id, "client", PRODUCE.request(), 100)


def message(topics: list[TopicProduced], throttle_time_ms: int = 0) -> ProduceResponse:
    return ProduceResponse(
        throttle_time_ms=throttle_time_ms,
        responses=[
            ProduceTopicResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    ProducePartitionResponse(
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
    assert produced(asked, topics, throttle_ms) == answer_buffers(asked, message(topics, throttle_ms))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 1000])
def test_so_it_is_for_any_number_of_partitions(version: int, count: int) -> None:
    topics: list[TopicProduced] = [("topic", bytes(16), [(number, number, -1, 0) for number in range(count)])]
    asked = request(version)
    buffers = produced(asked, topics)
    assert buffers == answer_buffers(asked, message(topics))
    assert len(buffers) == (2 if sum(map(len, buffers)) > COPIED_BYTES else 1)
