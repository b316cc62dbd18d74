"""The client for programs without an event loop of their own: plain sockets, no background thread, the source of the client for
trio and asyncio.

    with BlockingClient((host, port)) as client:
        BlockingAdmin(client).create_topic("t")
        with BlockingProducer(client) as producer:
            producer.send("t", b"value")
        with BlockingConsumer(client, follow=False) as consumer:
            consumer.assign("t")
            for partition, record in consumer.records(): ...

Everything happens inside a call: nothing is sent, received or retried while the program does not call in. One client with
its producers and consumers belongs to one thread and one process: open one per thread, and after a fork (Spark's Python
workers are forked) never use one that was opened before it.

The classes here hold no logic of their own: each has its shared counterpart, whose coroutines and tasks run in `loop` while a
call waits. `client.Started` and `outbox` are for programs that move whole record batches.
"""

from __future__ import annotations

from ....protocol.errors import ExpectedOffsetError
from ....protocol.native.messages import PlainRecord
from ....protocol.types import TimeRange
from ..procedures.groups import CommittedOffset
from ..procedures.topics import EARLIEST, LATEST, AtOffset, AtTime
from .admin import BlockingAdmin
from .client import BlockingClient
from .consumer import BlockingConsumer
from .producer import BlockingAppender, BlockingProducer, BlockingRecord
from .transaction import BlockingTransaction

__all__ = [
    "EARLIEST",
    "LATEST",
    "AtOffset",
    "AtTime",
    "BlockingAdmin",
    "BlockingAppender",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "BlockingRecord",
    "BlockingTransaction",
    "CommittedOffset",
    "ExpectedOffsetError",
    "PlainRecord",
    "TimeRange",
]
