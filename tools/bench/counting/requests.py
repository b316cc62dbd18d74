"""Counts the cost of each hot request to a server: one request per connection, on one connection and on many."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.messages.groups import HeartbeatRequest
from ....protocol.kafka.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ....protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from ..measuring.wire import FIRST_TIMESTAMP, batch_of, packed, produce_frame, read_answer
from .meters import Counts
from .rounds import Peer, Rounds
from .served import (
    BATCH_RECORDS,
    BATCHES,
    GROUP,
    HELLO,
    INSTANCE,
    ONE,
    PARTITIONS,
    VALUE_BYTES,
    WIDE,
    Served,
    kafka_frame,
    metadata_request,
    read_kafka_answer,
    serving,
)

LARGE_BYTES: Final = 2**20
ROUNDS: Final = {1: 100, 50: 10}
"""By connections."""
LONG_ROUNDS: Final = {1: 20, 50: 5}
"""Of requests that take thousands of calls."""
WARM_UP: Final = {1: 20, 50: 2}


@attrs.frozen
class Load:
    """A request that is sent again and again."""

    frame: Callable[[Served], Awaitable[bytes]]
    """Makes it, on a server that has the topics ONE and WIDE."""
    key: ApiKey | None = None
    """None: the native protocol."""
    rounds: Mapping[int, int] = ROUNDS

    async def open(self, served: Served) -> Peer:
        """Connect a client of the protocol."""
        address = served.addresses.native if self.key is None else served.addresses.kafka
        assert address is not None
        peer = Peer(address)
        if self.key is None:
            read_answer(await peer.ask(HELLO))
        return peer

    def check(self, answer: bytes) -> None:
        """Raise LoadFailedError for an answer with an error."""
        if self.key is None:
            read_answer(answer)
        else:
            read_kafka_answer(self.key, answer)


# ---- requests ----------------------------------------------------------------------------------------------------------


async def _kafka_metadata(served: Served) -> bytes:
    return kafka_frame(ApiKey.METADATA, metadata_request(ONE))


async def _kafka_produce(served: Served) -> bytes:
    records = batch_of(1, VALUE_BYTES)
    parts = [ProducePartition(index=0, records=records)]
    topics = [ProduceTopic(name=ONE, topic_id=await served.topic_id(ONE), partition_data=parts)]
    return kafka_frame(ApiKey.PRODUCE, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics))


async def _kafka_fetch(served: Served) -> bytes:
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
    topics = [FetchTopic(topic=ONE, topic_id=await served.topic_id(ONE), partitions=parts)]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=LARGE_BYTES,
        isolation_level=0,
        session_id=0,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )
    return kafka_frame(ApiKey.FETCH, request)


async def _kafka_list_offsets(served: Served, *, partitions: int) -> bytes:
    parts = [ListOffsetsPartition(partition_index=number, timestamp=_time_in(number)) for number in range(partitions)]
    topics = [ListOffsetsTopic(name=WIDE, partitions=parts)]
    return kafka_frame(ApiKey.LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, timeout_ms=0))


async def _kafka_heartbeat(served: Served) -> bytes:
    generation_id, member_id = await served.member()
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation_id, member_id=member_id, group_instance_id=INSTANCE)
    return kafka_frame(ApiKey.HEARTBEAT, request)


async def _kafka_offset_commit(served: Served) -> bytes:
    generation_id, member_id = await served.member()
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)]
    topics = [OffsetCommitRequestTopic(name=ONE, topic_id=await served.topic_id(ONE), partitions=parts)]
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=INSTANCE,
        topics=topics,
    )
    return kafka_frame(ApiKey.OFFSET_COMMIT, request)


async def _native_produce(served: Served) -> bytes:
    return produce_frame(2, ONE, 0, batch_of(1, VALUE_BYTES))


async def _native_fetch(served: Served) -> bytes:
    entry = {"topic": ONE, "partition": 0, "offset": 0, "max_bytes": 1}
    return packed(2, "fetch", {"max_bytes": LARGE_BYTES, "isolation": "read_uncommitted", "partitions": [entry]})


async def _native_offsets_for_times(served: Served) -> bytes:
    asked = [{"topic": WIDE, "partition": 0, "timestamp": _time_in(0)}]
    return packed(2, "offsets_for_times", {"partitions": asked})


def _offset_in(partition: int) -> int:
    """Return an offset in the middle of the log and inside of a batch."""
    return BATCHES * BATCH_RECORDS // 2 + partition % BATCH_RECORDS


def _time_in(partition: int) -> int:
    return FIRST_TIMESTAMP + _offset_in(partition)


LOADS: Final[Mapping[str, Load]] = {
    "Produce, 1 record": Load(_kafka_produce, ApiKey.PRODUCE),
    "Fetch, 1 record": Load(_kafka_fetch, ApiKey.FETCH),
    "ListOffsets by time, 1 partition": Load(partial(_kafka_list_offsets, partitions=1), ApiKey.LIST_OFFSETS),
    f"ListOffsets by time, {PARTITIONS} partitions": Load(
        partial(_kafka_list_offsets, partitions=PARTITIONS), ApiKey.LIST_OFFSETS, LONG_ROUNDS
    ),
    "Metadata": Load(_kafka_metadata, ApiKey.METADATA),
    "Heartbeat": Load(_kafka_heartbeat, ApiKey.HEARTBEAT),
    "OffsetCommit": Load(_kafka_offset_commit, ApiKey.OFFSET_COMMIT),
    "native produce, 1 record": Load(_native_produce),
    "native fetch, 1 record": Load(_native_fetch),
    "native offsets_for_times, 1 partition": Load(_native_offsets_for_times),
}


# ---- counting ----------------------------------------------------------------------------------------------------------


def count_requests(*, only: Sequence[str] = (), connections: Sequence[int] = tuple(ROUNDS)) -> list[dict[str, Any]]:
    """Return the counts of each load, or of those in `only`, for each number of connections.

    Every one has a server of its own.
    """
    return [
        {"load": name, "connections": count, **attrs.asdict(trio.run(_count, load, count))}
        for name, load in LOADS.items()
        for count in connections
        if not only or name in only
    ]


def count_functions(*, load: str, connections: int) -> dict[str, float]:
    """Return the calls of a request by function, most first."""
    return trio.run(_functions, LOADS[load], connections)


def count_files(*, load: str) -> dict[str, Any]:
    """Return the files that a request of one connection passes through, and how often the folder changes from one call to the
    next."""
    names = trio.run(_files, LOADS[load])
    folders = [name.rpartition("/")[0] for name in names]
    return {"files": sorted(set(names)), "folder_changes": sum(map(operator.ne, folders, folders[1:]))}


def count_garbage(*, connections: int) -> dict[str, float]:
    """Return by load how many objects of a request only the garbage collector frees."""
    return {name: trio.run(_garbage, load, connections) for name, load in LOADS.items()}


async def _files(load: Load) -> list[str]:
    async with _rounds(load, 1) as rounds:
        return await rounds.files(WARM_UP[1])


async def _garbage(load: Load, connections: int) -> float:
    async with _rounds(load, connections) as rounds:
        return await rounds.garbage(load.rounds[connections], WARM_UP[connections])


async def _functions(load: Load, connections: int) -> dict[str, float]:
    async with _rounds(load, connections) as rounds:
        return await rounds.functions(load.rounds[connections], WARM_UP[connections])


async def _count(load: Load, connections: int) -> Counts:
    async with _rounds(load, connections) as rounds:
        return await rounds.counts(load.rounds[connections], WARM_UP[connections])


@asynccontextmanager
async def _rounds(load: Load, connections: int) -> AsyncIterator[Rounds]:
    async with serving() as served:
        frame = await load.frame(served)
        with ExitStack() as stack:
            peers = [stack.enter_context(await load.open(served)) for _ in range(connections)]
            yield Rounds(peers, [frame] * connections, load.check, served.threads)
