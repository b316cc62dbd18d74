"""A record now and then: how long from its append at the source until a reader of committed records has it upstream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ..measuring.child import LoadFailedError
from ..measuring.measure import percentile
from ..measuring.wire import Address, Wire, batch_of, produce_frame

if TYPE_CHECKING:
    from confluent_kafka import Consumer

VALUE_BYTES: Final = 100
PATIENCE_S: Final = 60.0


def end_to_end(*, address: Address, to: str, topic: str, target: str, records: int, interval_s: float) -> dict[str, float]:
    """p50 and the slowest in ms. The first record is not counted: until it is there nothing was connected."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": to, "group.id": "bench", "isolation.level": "read_committed", "log_level": 0})
    frame = produce_frame(2, topic, 0, batch_of(1, VALUE_BYTES))
    taken_ms = []
    try:
        consumer.assign([TopicPartition(target, 0, 0)])
        with Wire(address) as wire:
            for _ in range(records + 1):
                began = time.perf_counter()
                wire.ask(frame)
                _await_record(consumer, began + PATIENCE_S)
                taken_s = time.perf_counter() - began
                taken_ms.append(taken_s * 1000)
                time.sleep(max(0.0, interval_s - taken_s))
    finally:
        consumer.close()
    del taken_ms[0]
    return {"p50_ms": percentile(taken_ms, 0.5), "max_ms": max(taken_ms)}


def _await_record(consumer: Consumer, deadline: float) -> None:
    while time.perf_counter() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return
    raise LoadFailedError("a record did not come upstream")
