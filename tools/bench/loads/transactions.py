"""A log of transactions, one after the other."""

from __future__ import annotations

from ..measuring.child import LoadFailedError
from ..measuring.wire import Address, BatchProducer, Wire, batch_of

ABORTED_EVERY = 10
TRANSACTIONAL_ID = "bench"


def fill_transactions(
    *, address: Address, topic: str, transactions: int, batches: int, records: int, value_bytes: int
) -> dict[str, int]:
    """Append transactions of `batches` batches to partition 0 of a topic that is there; every tenth is aborted.

    Answers the log's end offset: a marker takes an offset behind each transaction.
    """
    with Wire(address) as wire:
        producer = wire.call("init_producer", {"transactional_id": TRANSACTIONAL_ID})
        identity = (producer["producer_id"], producer["producer_epoch"])
        who = {"transactional_id": TRANSACTIONAL_ID, "producer_id": identity[0], "producer_epoch": identity[1]}
        for number in range(transactions * batches):
            state = BatchProducer(*identity, number * records, is_transactional=True)
            entry = {"topic": topic, "partition": 0, "records": batch_of(records, value_bytes, producer=state)}
            wire.call("produce", {"transactional_id": TRANSACTIONAL_ID, "partitions": [entry]})
            transaction, slot = divmod(number, batches)
            if slot == batches - 1:
                wire.call("end_transaction", {**who, "commit": (transaction + 1) % ABORTED_EVERY != 0})
        asked = {"topic": topic, "partition": 0, "offset": 0, "max_bytes": 1}
        end_offset = wire.call("fetch", {"isolation": "read_committed", "partitions": [asked]})["partitions"][0]
    expected = transactions * (batches * records + 1)
    if end_offset["last_stable_offset"] != expected:
        raise LoadFailedError(f"the last stable offset is {end_offset['last_stable_offset']}, {expected} is right")
    return {"end_offset": expected}
