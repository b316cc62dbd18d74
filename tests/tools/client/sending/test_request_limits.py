from __future__ import annotations

import pytest
from triolog.protocol.errors import RecordTooLargeError
from triolog.protocol.limits import INT32_MAX, MAX_TOPIC_NAME_CHARS, MAX_TRANSACTIONAL_ID_CHARS
from triolog.protocol.native.frames import pack_frame
from triolog.protocol.native.messages import VERSION, ProduceRequest
from triolog.protocol.types import CompressionType
from triolog.tools.client.backoff import Backoff
from triolog.tools.client.sending.partition_queue import Delivery, PartitionQueue
from triolog.tools.client.sending.request_limits import RequestLimits


def sized_delivery(size_bytes: int, partition: int = INT32_MAX) -> Delivery:
    queue = PartitionQueue("t" * MAX_TOPIC_NAME_CHARS, partition, Backoff(1, 1), 1)
    delivery = Delivery(queue, ())
    delivery.records = bytes(size_bytes)
    return delivery


def frame_bytes(request: list[Delivery]) -> int:
    transactional_id = "\N{GRINNING FACE}" * MAX_TRANSACTIONAL_ID_CHARS
    message = ProduceRequest(tuple(delivery.to_message() for delivery in request), -1, INT32_MAX, transactional_id)
    return sum(map(len, pack_frame((2**32 - 1, message.api, VERSION), message.to_body())))


@pytest.mark.parametrize("max_frame_bytes", [3_000, 20_000, 1_000_000])
def test_the_longest_names_fit_the_frame_too(max_frame_bytes: int) -> None:
    limits = RequestLimits(max_request_bytes=10**9, max_frame_bytes=max_frame_bytes)
    deliveries = [sized_delivery(size, size) for size in (limits.max_records_bytes, 100, 200, 300, limits.max_records_bytes - 1)]
    requests = list(limits.split(deliveries * 20))
    assert [delivery for request in requests for delivery in request] == deliveries * 20
    assert all(frame_bytes(request) <= max_frame_bytes + 4 for request in requests)


def test_a_delivery_above_the_limits_is_alone_and_a_record_is_judged_where_its_size_is_known() -> None:
    limits = RequestLimits(max_request_bytes=500, max_frame_bytes=5_000)
    deliveries = [sized_delivery(size) for size in (100, 9_000, 100, 600)]
    assert [len(request) for request in limits.split(deliveries)] == [1, 1, 1, 1]
    assert [limits.is_sendable(delivery) for delivery in deliveries] == [True, False, True, True]
    queue = sized_delivery(0, 3).queue
    limits.check_record(queue, 9_000, CompressionType.GZIP)
    with pytest.raises(RecordTooLargeError, match=r"9000 bytes for t+-3; the server takes frames of at most"):
        limits.check_record(queue, 9_000, CompressionType.NONE)
