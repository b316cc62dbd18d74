"""Who reads: a consumer of everything or of what is committed, a group's offsets, lookups by time.

One fetch by Kafka's protocol, and what its answer means to a reader: as Kafka's consumers read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import attrs
import trio
from triolog.protocol.errors import ErrorCode, TriologError
from triolog.protocol.kafka.messages.records import FetchAbortedTransaction
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, check_batch, iter_batches, parse_header
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import EARLIEST_TIMESTAMP, Record, TopicPartition
from triolog.server.listeners.kafka.door import NO_TOPIC_ID
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import Client
from triolog.tools.client.procedures import groups as group_procedures

from tests.simulation import history as h
from tests.simulation.clients.inhabitant import Inhabitant, KafkaConnection, KafkaInhabitant, native_client
from tests.simulation.script import Step
from tests.support.kafka_server import fetch_partition, fetch_request
from tests.support.kafka_wire import ask

OFFSET_DELETE_VERSION: Final = 0
DELETE_GROUPS_VERSION: Final = 2
LIST_OFFSETS_VERSION: Final = 6


@attrs.define(eq=False)
class Reader(KafkaInhabitant):
    """Reads on from where it was. The one with an odd number reads what is committed."""

    _positions: dict[TopicPartition, int] = attrs.field(factory=dict)

    @property
    def is_committed(self) -> bool:
        return self.who.endswith("1")

    async def poll(self, topic: str, partition: int, max_bytes: int) -> None:
        where = TopicPartition(topic, partition)
        position = self._positions.get(where, 0)
        fetched = await fetch(self.kafka, where, position, is_committed=self.is_committed, max_bytes=max_bytes)
        if fetched is None:
            return
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            """The log was trimmed meanwhile, or what was read was lost."""
            await self._go_to_start(where)
        elif fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            self.world.add(h.Refused(**self.now(), partition=where, offset=position, is_committed=self.is_committed))
            self._go_to(where, position + 1)
        elif not fetched.error_code:
            self._positions[where] = fetched.next_position
            self.world.add(fetched.polled(self.now(), where, position, is_committed=self.is_committed))

    async def _go_to_start(self, where: TopicPartition) -> None:
        async with native_client(self.world) as client:
            try:
                with trio.fail_after(5):
                    start = (await Admin(client).offsets_for_times({where: -2}))[where].offset
            except (TriologError, trio.TooSlowError):
                return
        self._go_to(where, start, is_start=True)

    async def rewind(self, topic: str, partition: int) -> None:
        """Whoever keeps a table of what is in a compacted topic begins with its first record."""
        where = TopicPartition(topic, partition)
        self._go_to(where, 0)
        await self.poll(topic, partition, max_bytes=10**6)

    def _go_to(self, where: TopicPartition, position: int, *, is_start: bool = False) -> None:
        self._positions[where] = position
        self.world.add(h.Moved(**self.now(), partition=where, position=position, is_start=is_start))


@attrs.define(eq=False)
class Native(Inhabitant):
    """Whose calls are the native client's."""

    _client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def run(self, steps: list[Step]) -> None:
        async with native_client(self.world) as client:
            self._client = client
            await super().run(steps)


@attrs.define(eq=False)
class Group(Native):
    """Commits offsets that only grow, whatever the partitions hold, and asks for them."""

    _next: int = 0
    _committed: set[TopicPartition] = attrs.field(factory=set)

    async def commit(self, topic: str, partition: int) -> None:
        where = TopicPartition(topic, partition)
        self._next += 1
        self._committed.add(where)
        said = {"group": self.who, "partition": where, "offset": self._next}
        self.world.add(h.CommitsOffset(**self.now(), **said))
        try:
            await self.client.run(group_procedures.commit_offsets(self.who, {where: self._next}))
        except TriologError:
            self.world.add(h.OffsetCommitted(**self.now(), **said, is_kept=None))
        else:
            self.world.add(h.OffsetCommitted(**self.now(), **said, is_kept=True))

    async def forget(self, topic: str, partition: int) -> None:
        """Delete the group's offset of a partition (OffsetDelete), which is as if it had committed none."""
        where = TopicPartition(topic, partition)
        topics = [{"name": topic, "partitions": [{"partition_index": partition}]}]
        answer = await self._delete([where], ask("OffsetDelete", group_id=self.who, topics=topics), OFFSET_DELETE_VERSION)
        if answer is not None:
            errors = [each.error_code for found in answer.topics for each in found.partitions]
            self._deleted([where], ErrorCode(answer.error_code or next(iter(errors), 0)))

    async def disband(self) -> None:
        """Delete the group (DeleteGroups), and with it all of its offsets."""
        wheres = sorted(self._committed)
        answer = await self._delete(wheres, ask("DeleteGroups", groups_names=[self.who]), DELETE_GROUPS_VERSION)
        if answer is not None:
            self._deleted(wheres, ErrorCode(answer.results[0].error_code))

    async def _delete(self, wheres: Sequence[TopicPartition], request: Any, version: int) -> Any | None:
        """The answer; None: no answer, and the deletion may come or not."""
        for where in wheres:
            self.world.add(h.CommitsOffset(**self.now(), group=self.who, partition=where, offset=-1))
        kafka = KafkaConnection(self.world)
        answer = await kafka.call(request, version)
        await kafka.close()
        if answer is None:
            self._deleted(wheres, None)
        return answer

    def _deleted(self, wheres: Sequence[TopicPartition], error: ErrorCode | None) -> None:
        """A group that does not exist has no offsets."""
        is_kept = True if error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) else None
        for where in wheres:
            self.world.add(h.OffsetCommitted(**self.now(), group=self.who, partition=where, offset=-1, is_kept=is_kept))

    async def resume(self, topic: str, partition: int) -> None:
        where = TopicPartition(topic, partition)
        try:
            found = await self.client.run(group_procedures.fetch_offsets(self.who, [where], require_stable=True))
        except TriologError:
            return
        offset = found[where].offset if where in found else -1
        self.world.add(h.OffsetFetched(**self.now(), group=self.who, partition=where, offset=offset))


@attrs.define(eq=False)
class Looker(Native):
    """Asks for the first record at or after a time."""

    async def look(self, topic: str, partition: int, back_ms: int) -> None:
        where = TopicPartition(topic, partition)
        timestamp, begun_ms = self.world.now_ms() - back_ms, self.world.at_ms()
        try:
            answer = (await Admin(self.client).offsets_for_times({where: timestamp}))[where]
        except TriologError:
            return
        self.world.add(
            h.LookedUp(
                **self.now(),
                partition=where,
                timestamp=timestamp,
                begun_ms=begun_ms,
                offset=answer.offset,
                found_timestamp=answer.timestamp,
            )
        )


FETCH_VERSION: Final = 12
FETCH_BY_ID_VERSION: Final = 13
ID_HEADER: Final = "id"


class Caller(Protocol):
    """A connection, or what stands for one."""

    async def call(self, body: object, version: int) -> Any | None:
        """The answer, None when nobody knows."""

    def sees(self, kind: str, detail: str) -> None:
        """An anomaly that is seen on the spot."""


class Fetched(NamedTuple):
    """`error_code`: of the partition."""

    error_code: int
    records: tuple[h.Found, ...] = ()
    markers: tuple[tuple[int, int], ...] = ()
    """Offset and timestamp of each."""
    next_position: int = -1
    size_bytes: int = 0

    def polled(self, now: dict[str, Any], where: TopicPartition, position: int, **more: Any) -> h.Polled:
        """What a reader that was at `position` notes of it; `more`: fields of the event."""
        return h.Polled(
            **now, partition=where, position=position, records=self.records, next_position=self.next_position, **more
        )


async def fetch(
    kafka: Caller,
    where: TopicPartition,
    position: int,
    *,
    is_committed: bool,
    max_bytes: int,
    max_wait_ms: int = 100,
    topic_id: bytes = NO_TOPIC_ID,
) -> Fetched | None:
    """None: no answer. With a topic id the topic is named by that."""
    part = fetch_partition(position, partition=where.partition, max_bytes=max_bytes)
    how = {"max_wait_ms": max_wait_ms, "max_bytes": max_bytes, "isolation_level": int(is_committed)}
    request = fetch_request(part, topic=where.topic, topic_id=topic_id, **how)
    answer = await kafka.call(request, FETCH_VERSION if topic_id == NO_TOPIC_ID else FETCH_BY_ID_VERSION)
    if answer is None or answer.error_code or not answer.responses:
        return None
    [found] = answer.responses[0].partitions
    if found.error_code:
        return Fetched(found.error_code)
    data = bytes(found.records or b"")
    try:
        for header, batch in iter_batches(data):
            check_batch(batch, header)
    except TriologError as exc:
        kafka.sees("served damage", f"{where} at {position}: {exc}")
        return None
    records, markers, next_position = _read(data, position, found.aborted_transactions or ())
    return Fetched(0, records, markers, next_position, len(data))


async def log_start(kafka: Caller, where: TopicPartition) -> int | None:
    """None: no answer."""
    part = {"partition_index": where.partition, "timestamp": EARLIEST_TIMESTAMP}
    topics = [{"name": where.topic, "partitions": [part]}]
    answer = await kafka.call(ask("ListOffsets", replica_id=-1, isolation_level=0, topics=topics), LIST_OFFSETS_VERSION)
    if answer is None or answer.topics[0].partitions[0].error_code:
        return None
    return int(answer.topics[0].partitions[0].offset)


def _read(
    data: bytes, position: int, aborted: Iterable[FetchAbortedTransaction]
) -> tuple[tuple[h.Found, ...], tuple[tuple[int, int], ...], int]:
    """The records from `position` on but those of aborted transactions: from a first offset to the marker; markers; the end.
    A record's id is the first line of its value."""
    begins = sorted(aborted, key=lambda each: each.first_offset)
    active: set[int] = set()
    found: list[h.Found] = []
    markers: list[tuple[int, int]] = []
    next_position = position
    for header, batch in iter_batches(data):
        next_position = max(next_position, header.next_offset)
        while begins and begins[0].first_offset <= header.last_offset:
            active.add(begins.pop(0).producer_id)
        if header.is_control:
            active.discard(header.producer_id)
            markers.append((header.base_offset, header.max_timestamp))
            continue
        if header.is_transactional and header.producer_id in active:
            continue
        found += [
            h.Found(record.offset, id_of(record), record.timestamp)
            for record in iter_records(batch, header)
            if record.offset >= position
        ]
    return tuple(found), tuple(markers), next_position


def records_in(data: bytes, position: int) -> Iterator[h.Found]:
    """Everything that is good in a file of batches, from an offset on."""
    view, at = memoryview(data), 0
    while at + RECORD_BATCH_OVERHEAD <= len(data):
        header = parse_header(view, at)
        batch = view[at : at + max(RECORD_BATCH_OVERHEAD, header.size_bytes)]
        try:
            check_batch(batch, header)
        except TriologError:
            at += 1
            continue
        yield from _read(bytes(batch), position, ())[0]
        at += header.size_bytes


def id_of(record: Record) -> str:
    """The first line of its value; a tombstone has it in a header. A record under another key than the id says nobody sent."""
    value = dict(record.headers)[ID_HEADER] if record.value is None else record.value
    found, key = bytes(value or b"").partition(b"\n")[0].decode(), None if record.key is None else bytes(record.key).decode()
    return found if h.key_of(found) in (None, key) else f"{found} under {key}"


def fields_of(record: str) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]:
    """Key, value and headers of the record with an id."""
    key = h.key_of(record)
    if key is None:
        return None, record.encode(), ()
    if h.is_tombstone(record):
        return key.encode(), None, ((ID_HEADER, record.encode()),)
    return key.encode(), record.encode(), ()
