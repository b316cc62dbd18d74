"""The topic `_schemas`: read to its end before every request, written to at the offset that was read.

A write names the offset at which the log must end. If another program has written there meanwhile, the change is decided again
on the new state. So several registries of triolog on one topic never give an id twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

import attrs
import trio

from ...protocol.errors import (
    ExpectedOffsetError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RequestError,
    TopicAlreadyExistsError,
)
from ...protocol.limits import MIB
from ...protocol.records.batch import iter_batches
from ...protocol.records.record import CommittedFilter, iter_records
from ...protocol.types import SCHEMAS_TOPIC, Isolation, TopicPartition
from ..broker import Broker, FetchPartition, ReaderView
from .errors import SCHEMA_TOO_LARGE, STORE_ERROR, RegistryError
from .records import Written
from .state import Schemas

LOGGER: Final = logging.getLogger(__name__)

PLACE: Final = TopicPartition(SCHEMAS_TOPIC, 0)
CONFIG: Final = {"cleanup.policy": "compact"}
READ_BYTES: Final = MIB
RECORDS_PER_TURN: Final = 16
"""Records that are applied before other tasks run. One takes 20 us, and a large one a millisecond."""
ATTEMPTS: Final = 20
VIEW: Final = ReaderView(Isolation.READ_COMMITTED, skip_gaps=True)

T = TypeVar("T")
Decide = Callable[[Schemas], Awaitable[tuple[Sequence[Written], Callable[[], T]]]]
"""Returns the records of a change, and a function for the response, which is called once they are stored. Raises
RegistryError."""


@attrs.define(eq=False, repr=False)
class SchemasTopic:
    """Owner of the state. `find_broker` returns the running broker; None while there is none."""

    find_broker: Callable[[], Broker | None]
    _broker: Broker | None = None
    """Whose topic was read."""
    _topic_id: bytes = b""
    _next_offset: int = 0
    _schemas: Schemas | None = None
    _reading: trio.Lock = attrs.field(factory=trio.Lock)
    _writing: trio.Lock = attrs.field(factory=trio.Lock)

    @property
    def broker(self) -> Broker:
        """Return the running broker. Raises RegistryError."""
        broker = self.find_broker()
        if broker is None:
            raise RegistryError(STORE_ERROR, "Error in the backend data store: the broker is down")
        return broker

    async def read(self) -> Schemas:
        """Return the state, with everything that is committed in the topic. Raises RegistryError."""
        with _store_errors():
            async with self._reading:
                return await self._read()

    async def change(self, decide: Decide[T]) -> T:
        """Decide and store a change. Raises RegistryError; then nothing is stored, unless it is a STORE_ERROR that says that
        the outcome is unknown."""
        with _store_errors():
            async with self._writing:
                for _ in range(ATTEMPTS):
                    schemas = await self.read()
                    offset = self._next_offset
                    records, respond = await decide(schemas)
                    if not records:
                        return respond()
                    with contextlib.suppress(ExpectedOffsetError):
                        await self._append(records, offset)
                        await self.read()
                        return respond()
        raise RegistryError(STORE_ERROR, "Error in the backend data store: other programs write to the topic all the time")

    async def _append(self, records: Sequence[Written], offset: int) -> None:
        broker = self.broker
        if not offset and SCHEMAS_TOPIC not in set(broker.topics.names()):
            with contextlib.suppress(TopicAlreadyExistsError):
                await broker.topics.create(SCHEMAS_TOPIC, 1, CONFIG)
        await broker.writer.append(PLACE, [(None, key, value, ()) for key, value in records], expected_offset=offset)

    async def _read(self) -> Schemas:
        broker = self.broker
        topic_id = broker.topics.id_of(SCHEMAS_TOPIC) if broker.topics.has_partition(PLACE) else b""
        if self._schemas is None or broker is not self._broker or topic_id != self._topic_id:
            if topic_id:
                _check_topic(broker)
            account = broker.client_memory.account("registered schemas")
            account.clear()
            self._schemas, self._broker, self._topic_id, self._next_offset = Schemas(account), broker, topic_id, 0
        if topic_id:
            await self._read_on(broker, self._schemas)
        return self._schemas

    async def _read_on(self, broker: Broker, schemas: Schemas) -> None:
        """A read that is cancelled is continued by the next one: each record is applied once."""
        snapshot = broker.reader.snapshot(PLACE)
        self._next_offset = max(self._next_offset, snapshot.log_start_offset)
        applied = 0
        while self._next_offset < snapshot.last_stable_offset:
            question = FetchPartition(PLACE, self._next_offset, READ_BYTES)
            [answer] = await broker.reader.fetch([question], max_bytes=READ_BYTES, view=VIEW)
            if answer.fetched is None:
                assert answer.error is not None
                raise answer.error
            before = self._next_offset
            committed = CommittedFilter((each.producer_id, each.first_offset) for each in answer.fetched.aborted or ())
            for header, batch in iter_batches(answer.fetched.records):
                if not committed.leaves_out(header, batch):
                    for record in iter_records(batch, header):
                        if record.offset < self._next_offset:
                            continue
                        schemas.apply(record.key, record.value)
                        self._next_offset = record.offset + 1
                        applied += 1
                        if not applied % RECORDS_PER_TURN:
                            await trio.lowlevel.checkpoint()
                self._next_offset = header.next_offset
            if self._next_offset == before:
                break
        self._next_offset = max(self._next_offset, snapshot.last_stable_offset)


def _check_topic(broker: Broker) -> None:
    """Raises RegistryError for a topic that would lose schemas, or their order."""
    partitions, policy = (
        broker.topics.partition_count(SCHEMAS_TOPIC),
        broker.topics.describe_config(SCHEMAS_TOPIC)["cleanup.policy"][0],
    )
    if partitions != 1 or policy != "compact":
        raise RegistryError(
            STORE_ERROR,
            f"Error in the backend data store: {SCHEMAS_TOPIC} has {partitions} partitions and cleanup.policy={policy}. "
            "Use a topic with 1 partition and cleanup.policy=compact",
        )


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except (RecordTooLargeError, RecordBatchTooLargeError) as exc:
        raise RegistryError(SCHEMA_TOO_LARGE, f"Schema is too large: {exc.message}") from exc
    except RequestError as exc:
        raise RegistryError(STORE_ERROR, f"Error in the backend data store: {exc.message}") from exc
