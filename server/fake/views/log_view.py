"""`broker.log(topic)`: the records of a topic without a client; deletion and compaction at once instead of in their time.

`count_records` counts unread records, not offsets. Markers, aborted records, and offsets whose records were compacted, deleted
or lost to damage do not count. Records of an open transaction do not count either. Records after them that are in no
transaction do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError, UnknownTopicOrPartitionError
from ....protocol.records.batch import BatchHeader, iter_batches
from ....protocol.records.control import ControlRecordType, control_record_type
from ....protocol.records.partitioners import partition_for_key
from ....protocol.records.record import CommittedFilter, iter_records
from ....protocol.types import AppendResult, Isolation, Record, TopicPartition
from ...broker import Broker, FetchPartition, PlainRecord, ReaderView
from ..faults.rules import hint
from .fault_views import PATIENCE_S
from .former import FormerLogCalls

if TYPE_CHECKING:
    from ..odd_logs import OddLogs

FETCH_BYTES: Final = 8 * 2**20
FOREVER_S: Final = 3600.0

Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
Text = str | bytes | None


def check_topic(core: Broker, topic: str) -> None:
    """Raises UnknownTopicOrPartitionError."""
    if topic not in (names := list(core.topics.names())):
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}{hint(topic, names)}")


def unknown_group(core: Broker, group: str) -> str | None:
    """Return an error message about a group of any kind that has neither members nor offsets; None for a known group."""
    names = core.groups.group_ids()
    return None if group in names else f"there is no group {group!r}{hint(group, names)}"


def check_group(core: Broker, group: str) -> None:
    """Raises RequestError, GROUP_ID_NOT_FOUND."""
    if (error := unknown_group(core, group)) is not None:
        raise RequestError(error, ErrorCode.GROUP_ID_NOT_FOUND)


def as_bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


@attrs.frozen(eq=False, repr=False)
class LogView(FormerLogCalls):
    """A view of a topic. Raises RequestError where the broker would return an error."""

    core: Callable[[], Broker]
    topic: str
    _odd_logs: Callable[[], OddLogs]

    def __repr__(self) -> str:
        return f"LogView({self.topic!r})"

    def _partitions(self, partition: int | None) -> list[TopicPartition]:
        check_topic(self.core(), self.topic)
        if partition is not None:
            return [TopicPartition(self.topic, partition)]
        return [TopicPartition(self.topic, number) for number in range(self.core().topics.partition_count(self.topic))]

    async def fetch(self, offset: int = 0, *, partition: int | None = None, committed_only: bool = True) -> list[Record]:
        """Return all records that consumers can read from `offset` on, partition after partition, without control records.

        `partition`: None for all. `committed_only`: leave out records of aborted transactions; stop before the first open one.
        """
        return [record for each in self._partitions(partition) for record in await self._read(each, offset, committed_only)]

    async def values(self, partition: int | None = None) -> list[bytes | None]:
        """The values of the records."""
        return [record.value for record in await self.fetch(partition=partition)]

    async def _read(self, topic_partition: TopicPartition, offset: int, committed_only: bool) -> list[Record]:
        view = ReaderView(Isolation.READ_COMMITTED if committed_only else Isolation.READ_UNCOMMITTED)
        found: list[Record] = []
        at = max(offset, self.core().reader.snapshot(topic_partition).log_start_offset)
        while True:
            question = FetchPartition(topic_partition, at, FETCH_BYTES)
            [answer] = await self.core().reader.fetch([question], max_bytes=FETCH_BYTES, view=view)
            if answer.fetched is None:
                assert answer.error is not None
                raise answer.error
            batches = list(iter_batches(answer.fetched.records))
            if not batches:
                return found
            passed_over = CommittedFilter((each.producer_id, each.first_offset) for each in answer.fetched.aborted or ())
            for header, batch in batches:
                if not passed_over.leaves_out(header, batch):
                    found += [record for record in iter_records(batch, header) if record.offset >= at]
            at = batches[-1][0].next_offset

    async def append(
        self,
        records: Sequence[PlainRecord | Text],
        *,
        key: Text = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> AppendResult:
        """Append records to a partition, in one batch: values, or (timestamp_ms or None, key, value, headers).

        `key`, `headers` and `timestamp_ms` (since the epoch; None: now) apply to the values that are not tuples. By default,
        `partition` is the one that Kafka's clients choose for `key`; without a key it is 0. Raises TypeError for a single value
        in place of a list.
        """
        if isinstance(records, str | bytes):
            raise TypeError(f"{self.topic}: records are {records!r}, expected a list: append([{records!r}])")
        its_key, pairs = as_bytes(key), tuple(headers.items() if isinstance(headers, Mapping) else headers)
        if partition is None:
            count = len(self._partitions(None))
            partition = 0 if its_key is None else partition_for_key(its_key, count)
        plain = [each if isinstance(each, tuple) else (timestamp_ms, its_key, as_bytes(each), pairs) for each in records]
        return await self.core().writer.append(TopicPartition(self.topic, partition), plain)

    async def wait_for(
        self,
        count: int = 1,
        *,
        where: Callable[[Record], bool] | None = None,
        partition: int | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> list[Record]:
        """Wait until so many records are there that `where` holds for, and answer them. Raises TimeoutError."""
        found: list[Record] = []
        with trio.move_on_after(timeout_s):
            while True:
                ends = self.end_offsets()
                found = [record for record in await self.fetch(partition=partition) if where is None or where(record)]
                if len(found) >= count:
                    return found
                await self._wait_for_more(partition, ends)
        raise TimeoutError(
            f"{self.topic} has {len(found)} of {count} {'matching ' if where else ''}records after {timeout_s:g} s. "
            f"Its offsets end at {self.end_offsets()}"
        )

    async def _wait_for_more(self, partition: int | None, ends: dict[int, int]) -> None:
        questions = [FetchPartition(each, ends[each.partition], FETCH_BYTES) for each in self._partitions(partition)]
        view = ReaderView(Isolation.READ_COMMITTED)
        await self.core().reader.wait_for_bytes(questions, max_bytes=FETCH_BYTES, min_bytes=1, view=view)

    def start_offsets(self) -> dict[int, int]:
        """The first offset of each partition."""
        return {each.partition: self.core().reader.snapshot(each).log_start_offset for each in self._partitions(None)}

    def end_offsets(self) -> dict[int, int]:
        """Return the last stable offset of each partition: the offset after its last readable record."""
        return {each.partition: self.core().reader.snapshot(each).last_stable_offset for each in self._partitions(None)}

    async def delete_records(self, before_offset: int = -1, *, partition: int = 0) -> int:
        """Delete the records below an offset (-1: all) and answer the first one that is left."""
        return await self.core().logs.delete_records(TopicPartition(self.topic, partition), before_offset)

    async def compact(self, partition: int | None = None) -> int:
        """Compact now, the newest records too, partition after partition (None: all); answers how many rounds that took. The
        topic's cleanup.policy has to be compact."""
        return sum([await self.core().logs.compact(each) for each in self._partitions(partition)])

    # ---- logs that no real broker has ---------------------------------------------------------------------------------------

    async def skip_offsets(self, count: int = 1, *, partition: int = 0) -> int:
        """Leave a hole of `count` offsets at the end of a partition, as compaction does between batches, and return the next
        offset."""
        return await self._odd_logs().skip(self.core(), TopicPartition(self.topic, partition), count)

    async def append_empty_batch(self, count: int = 1, *, partition: int = 0) -> int:
        """Append the batch without records that compaction leaves of a batch with `count` offsets, and return its first
        offset."""
        return await self._odd_logs().append_empty_batch(self.core(), TopicPartition(self.topic, partition), count)

    async def append_old_format(self, records: Sequence[PlainRecord | Text], *, magic: int = 1, partition: int = 0) -> int:
        """Append records that Kafka clients get in the format of a Kafka before 0.11 (`magic` 1), or before 0.10 (0), and
        return the first offset. Other readers get a batch of today, and so do forks and copies. Records are as in `append`,
        without headers."""
        plain = [each if isinstance(each, tuple) else (None, None, as_bytes(each), ()) for each in records]
        return await self._odd_logs().append_old(self.core(), TopicPartition(self.topic, partition), plain, magic)

    async def lose_offsets(self, count: int = 1, *, partition: int = 0) -> int:
        """Append `count` offsets that count as lost to corruption, and return the first of them. The topic key gap.policy says
        what readers get there."""
        return await self._odd_logs().lose(self.core(), TopicPartition(self.topic, partition), count)

    async def generate(self, count: int, *, value_bytes: int = 100, seed: int = 0, partition: int | None = None) -> None:
        """Let each partition (or one) have `count` more records with random values of `value_bytes`, always the same for a
        seed. They are generated for each reader and stored nowhere. Values repeat after 16 batches of 64 KiB."""
        await self._odd_logs().generate(self.core(), self._partitions(partition), count, value_bytes=value_bytes, seed=seed)

    def discard(self, partition: int | None = None) -> None:
        """Make each partition (or one) a black hole: appends are checked, acknowledged and given offsets, and their records are
        gone. It lasts until the topic is deleted or the broker is reset."""
        self._odd_logs().discard(self.core(), self._partitions(partition))


PAGE_BYTES: Final = 8 * 2**20
VIEW: Final = ReaderView(skip_gaps=True)


async def count_records(
    core: Broker,
    where: TopicPartition,
    offset: int,
    *,
    committed_only: bool = True,
    leaves_out: Callable[[int], bool] | None = None,
) -> int:
    """Records from `offset` up to the high watermark, without those whose offset `leaves_out` holds for. `committed_only`:
    only those that were sent outside of transactions, or whose transaction is committed. Raises RequestError."""
    at = max(offset, core.reader.snapshot(where).log_start_offset)
    count, pending = 0, Counter[int]()
    while at < core.reader.snapshot(where).high_watermark:
        [answer] = await core.reader.fetch([FetchPartition(where, at, PAGE_BYTES)], max_bytes=PAGE_BYTES, view=VIEW)
        if answer.fetched is None:
            assert answer.error is not None
            raise answer.error
        before = at
        for header, batch in iter_batches(answer.fetched.records):
            if header.is_control:
                ended = pending.pop(header.producer_id, 0)
                count += ended if _is_commit(header, batch) else 0
            elif header.is_transactional and committed_only:
                pending[header.producer_id] += _counted(header, batch, at, leaves_out)
            else:
                count += _counted(header, batch, at, leaves_out)
            at = header.next_offset
        if at == before:
            break
    return count


def _counted(header: BatchHeader, batch: memoryview, offset: int, leaves_out: Callable[[int], bool] | None) -> int:
    """Records of a batch from an offset on. They are unpacked only where some of them may not count."""
    if leaves_out is None and header.base_offset >= offset:
        return header.records_count
    return sum(
        record.offset >= offset and not (leaves_out is not None and leaves_out(record.offset))
        for record in iter_records(batch, header)
    )


def _is_commit(header: BatchHeader, batch: memoryview) -> bool:
    return any(control_record_type(record.key) is ControlRecordType.COMMIT for record in iter_records(batch, header))
