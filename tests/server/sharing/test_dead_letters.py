"""Dead-letter queues of share groups (KIP-1191): what a record that was given up becomes, when, and where it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Bytes, Record, TopicPartition
from triolog.server.broker import Acknowledgement, AcquireMode, Broker, RecordState, ShareFetch, ShareKey

from tests.support.brokers import TOPIC, actor_of, records_from, running_broker, until
from tests.support.crash_fs import CrashFileSystem, distinct
from tests.support.logs import START_MS

GROUP: Final = "group"
QUEUE: Final = "dlq.orders"
SOURCE: Final = TopicPartition(TOPIC, 2)
ACCEPT, RELEASE, REJECT = 1, 2, 3
LOCK_S: Final = 30
RECORDS: Final = 6
ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}
CREATES: Final = {"errors_deadletterqueue_auto_create_topics_enable": True}
CONFIG: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "2",
    "errors.deadletterqueue.topic.name": QUEUE,
}
COPIES: Final = {"errors.deadletterqueue.copy.record.enable": "true"}


def key_of(broker: Broker) -> ShareKey:
    return ShareKey(GROUP, broker.topics.id_of(TOPIC), SOURCE.partition)


async def configure(broker: Broker, **more: str) -> None:
    """The configuration of the group; `more` with `_` for `.`."""
    keys = {**CONFIG, **{name.replace("_", "."): value for name, value in more.items()}}
    await broker.group_configs.change(GROUP, lambda _: keys)


async def begin(broker: Broker, queue: Mapping[str, str] | None = ENABLED, value: bytes = b"v", **more: str) -> None:
    """A topic with records in its third partition, a queue with two partitions, a group that has begun."""
    await broker.topics.create(TOPIC, 3)
    if queue is not None:
        await broker.topics.create(QUEUE, 2, queue)
    await configure(broker, **more)
    await broker.shares.initialize(*key_of(broker))
    records: list[tuple[int, bytes, bytes, Any]] = [
        (START_MS, b"k%d" % number, value, (("h", b"1"),)) for number in range(RECORDS)
    ]
    await broker.writer.append(SOURCE, build_batch(records))


@pytest.fixture
async def broker(fast_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(fast_path) as broker:
        yield broker


async def take(broker: Broker, max_records: int = RECORDS) -> list[tuple[int, int, int]]:
    fetch = ShareFetch(
        group_id=GROUP,
        member_id="a",
        partitions=[key_of(broker)],
        min_bytes=1,
        max_bytes=2**20,
        max_records=max_records,
        batch_size=100,
        mode=AcquireMode.RECORD_LIMIT,
    )
    fetched, _ = await broker.share_fetches.take(fetch, is_last=True)
    assert all(each.error is None for each in fetched)
    return [tuple(acquired) for each in fetched for acquired in each.acquired]


async def say(broker: Broker, first: int, last: int, *kinds: int) -> None:
    await broker.shares.acknowledge(key_of(broker), "a", [Acknowledgement(first, last, kinds)])


def is_done(broker: Broker, start_offset: int = RECORDS) -> bool:
    found = broker.shares.read_summary(*key_of(broker))
    return found is not None and found.start_offset == start_offset


async def letters(broker: Broker, partition: int = 0) -> list[Record]:
    return await records_from(broker, TopicPartition(QUEUE, partition)) if QUEUE in broker.topics.names() else []


def told_of(letter: Record) -> tuple[str, str]:
    headers: dict[str, Bytes | None] = dict(letter.headers)
    assert list(headers)[:4] == [f"__dlq.errors.{name}" for name in ("topic", "partition", "offset", "group")]
    assert (headers["__dlq.errors.topic"], headers["__dlq.errors.partition"]) == (TOPIC.encode(), b"2")
    assert headers["__dlq.errors.group"] == GROUP.encode()
    offset, message = headers["__dlq.errors.offset"], headers["__dlq.errors.message"]
    assert offset is not None
    assert message is not None
    return f"{bytes(offset).decode()}*{int(headers['__dlq.errors.delivery.count'] or b'')}", bytes(message).decode()


BY_CLIENT, BY_COUNT = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


async def test_a_rejected_record_is_in_the_queue_and_then_archived(broker: Broker) -> None:
    await begin(broker)
    assert await take(broker) == [(0, 5, 1)]
    await say(broker, 0, 5, REJECT, ACCEPT, REJECT, REJECT, ACCEPT, ACCEPT)
    await until(lambda: is_done(broker))
    found = await letters(broker)
    assert [told_of(each) for each in found] == [(f"{offset}*1", BY_CLIENT) for offset in (0, 2, 3)]
    assert [(each.key, each.value, each.timestamp, len(each.headers)) for each in found] == [(None, None, START_MS, 6)] * 3
    assert await letters(broker, 1) == []
    assert broker.shares.counters.dead_lettered == 3


async def test_the_queue_gets_copies_without_the_headers_of_the_record(broker: Broker) -> None:
    await begin(broker, **{name.replace(".", "_"): value for name, value in COPIES.items()})
    await take(broker)
    await say(broker, 0, 5, REJECT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, REJECT)
    await until(lambda: is_done(broker))
    assert [(each.key, each.value, len(each.headers)) for each in await letters(broker)] == [
        (b"k0", b"v", 6),
        (b"k5", b"v", 6),
    ]


async def test_a_record_after_its_last_delivery_is_in_the_queue(broker: Broker, mock_clock: trio.testing.MockClock) -> None:
    await begin(broker)
    await take(broker)
    await say(broker, 0, 5, RELEASE)
    await take(broker)
    await say(broker, 0, 0, RELEASE)
    await until(lambda: is_done(broker, 1))
    while not is_done(broker):
        mock_clock.jump(LOCK_S + 0.01)
        await trio.testing.wait_all_tasks_blocked()
        await take(broker)
    assert [told_of(each) for each in await letters(broker)] == [(f"{offset}*2", BY_COUNT) for offset in range(RECORDS)]


async def test_a_missing_queue_is_created_where_the_server_allows_it(fast_path: Path) -> None:
    async with running_broker(fast_path, num_partitions=3, **CREATES) as broker:
        await begin(broker, queue=None)
        await take(broker)
        await say(broker, 0, 5, REJECT)
        await until(lambda: is_done(broker))
        assert broker.topics.partition_count(QUEUE) == 3
        assert broker.topics.describe(QUEUE).config == {**ENABLED, "message.timestamp.type": "CreateTime"}
        assert len(await letters(broker, 2)) == RECORDS


REFUSED: Final[dict[str, tuple[Mapping[str, str] | None, dict[str, Any], str]]] = {
    "missing": (None, {}, "it does not exist. Create it"),
    "not allowed": ({}, {}, "set its errors.deadletterqueue.group.enable=true"),
    "another prefix": (ENABLED, {"errors_deadletterqueue_topic_name_prefix": "dead."}, "has to start with 'dead.'"),
    "another prefix, missing": (None, {"errors_deadletterqueue_topic_name_prefix": "dead.", **CREATES}, "has to start with"),
    "needs keys": ({**ENABLED, "cleanup.policy": "compact"}, {}, "INVALID_RECORD|key"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_record_is_archived_where_its_queue_refuses_it(
    fast_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    queue, keys, reason = REFUSED[case]
    async with running_broker(fast_path, **keys) as broker:
        await begin(broker, queue=queue)
        await take(broker)
        await say(broker, 0, 5, REJECT)
        await until(lambda: is_done(broker))
        assert await letters(broker) == []
        assert broker.shares.counters.dead_letters_failed == RECORDS
    [line] = [each.getMessage() for each in caplog.records if "dead letters not written" in each.getMessage()]
    assert "group=group topic_partition=topic-2 offsets=0-5 records=6" in line
    assert any(each in line for each in reason.split("|")), line


async def test_an_empty_prefix_allows_any_name(fast_path: Path) -> None:
    async with running_broker(fast_path, errors_deadletterqueue_topic_name_prefix="", **CREATES) as broker:
        await begin(broker, queue=None, errors_deadletterqueue_topic_name="failed")
        await take(broker)
        await say(broker, 0, 5, REJECT)
        await until(lambda: is_done(broker))
        assert len(await records_from(broker, TopicPartition("failed", 0))) == RECORDS


@pytest.mark.parametrize("name", ["__failed", "dlq/x", "d" * 300])
async def test_a_name_that_can_never_be_written_is_refused(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"errors\.deadletterqueue\.topic\.name"):
        await configure(broker, errors_deadletterqueue_topic_name=name)


async def test_a_queue_that_is_offline_is_tried_again_and_then_given_up(
    broker: Broker, caplog: pytest.LogCaptureFixture, mock_clock: trio.testing.MockClock
) -> None:
    await begin(broker)
    await take(broker)
    actor_of(broker, TopicPartition(QUEUE, 0)).take_offline("it burns")
    await say(broker, 0, 5, REJECT)
    mock_clock.autojump_threshold = 0.05
    await until_later(lambda: is_done(broker))
    tries = [each for each in caplog.records if "trying again" in each.getMessage()]
    assert (len(tries), broker.shares.counters.dead_letters_failed) == (4, RECORDS)


async def until_later(condition: Any) -> None:
    with trio.fail_after(3600):
        while not condition():
            await trio.sleep(1)


async def test_members_get_other_records_while_a_queue_cannot_be_written(broker: Broker) -> None:
    """And the start offset waits for the dead letters."""
    await begin(broker)
    broker.shares.write_dead_letters = never
    await take(broker, 2)
    await say(broker, 0, 1, REJECT)
    assert await take(broker) == [(2, 5, 1)]
    await say(broker, 2, 5, ACCEPT)
    assert broker.shares.in_flight(*key_of(broker)) == (0, 6, 0, 4)
    stored = broker.shares.stored(key_of(broker))
    assert stored is not None
    assert stored.batches[0] == (0, 1, RecordState.ARCHIVING, 1)


async def never(*_: object) -> int:
    await trio.sleep_forever()
    raise AssertionError


async def test_a_batch_of_dead_letters_has_the_size_that_the_queue_allows(broker: Broker) -> None:
    large = {**ENABLED, "max.message.bytes": "1500"}
    await begin(broker, queue=large, value=b"v" * 600, **{name.replace(".", "_"): value for name, value in COPIES.items()})
    await take(broker)
    await say(broker, 0, 5, REJECT)
    await until(lambda: is_done(broker))
    assert [(told_of(each)[0], each.value) for each in await letters(broker)] == [
        (f"{offset}*1", b"v" * 600) for offset in range(RECORDS)
    ]


async def test_a_copy_that_is_too_large_is_written_as_headers_only(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    small = {**ENABLED, "max.message.bytes": "800"}
    await begin(broker, queue=small, value=b"v" * 800, **{name.replace(".", "_"): value for name, value in COPIES.items()})
    await take(broker)
    await say(broker, 0, 5, REJECT)
    await until(lambda: is_done(broker))
    assert [(told_of(each)[0], each.value) for each in await letters(broker)] == [(f"{n}*1", None) for n in range(RECORDS)]
    assert "it is too large" in caplog.text


async def test_records_that_retention_has_deleted_leave_letters_without_a_copy(broker: Broker) -> None:
    await begin(broker, **{name.replace(".", "_"): value for name, value in COPIES.items()})
    write = broker.shares.write_dead_letters
    gate = trio.Event()

    async def later(*arguments: Any) -> int:
        await gate.wait()
        return await write(*arguments)

    broker.shares.write_dead_letters = later
    await take(broker)
    await say(broker, 0, 5, REJECT)
    await broker.logs.delete_records(SOURCE, 3)
    gate.set()
    await until(lambda: broker.shares.counters.dead_lettered == RECORDS)
    assert [each.key for each in await letters(broker)] == [None, None, None, b"k3", b"k4", b"k5"]


async def test_after_an_unhandled_exception_the_dead_letters_are_written_with_the_next_fetch(broker: Broker) -> None:
    await begin(broker)
    write = broker.shares.write_dead_letters

    async def fails(*_: Any) -> int:
        broker.shares.write_dead_letters = write
        raise ZeroDivisionError("injected")

    broker.shares.write_dead_letters = fails
    await take(broker)
    await say(broker, 0, 5, REJECT)
    await until(lambda: broker.disk.errors.counts["share-dead-letters"] == 1)
    assert await take(broker) == await letters(broker) == []
    await until(lambda: is_done(broker))
    assert len(await letters(broker)) == RECORDS


async def test_without_a_queue_in_its_configuration_a_group_archives_at_once(broker: Broker) -> None:
    await begin(broker, errors_deadletterqueue_topic_name="")
    await take(broker)
    await say(broker, 0, 5, REJECT)
    assert broker.shares.in_flight(*key_of(broker)) == (RECORDS, RECORDS, 0, 0)
    assert await letters(broker) == []


# ---- crashes ---------------------------------------------------------------------------------------------------------------


async def rejected_steps(path: Path) -> list[CrashFileSystem]:
    """The moments between operations on the disk while records are rejected, written to the queue and archived."""
    fs = CrashFileSystem()
    async with running_broker(path, fs=fs, durability="fsync", **CREATES) as broker:
        await begin(broker, queue=None)
        await take(broker)
        moments = fs.moments()
        await say(broker, 0, 5, REJECT)
        await until(lambda: is_done(broker))
        return [*moments, fs.copy()]


@pytest.mark.merge
@pytest.mark.parametrize("kind", ["killed", "power cut"])
async def test_a_crash_archives_no_record_whose_dead_letter_is_not_in_the_queue(fast_path: Path, kind: str) -> None:
    steps = await rejected_steps(fast_path)
    left = distinct([step.copy() if kind == "killed" else step.copy().crash(None) for step in steps])
    seen = set[RecordState | None]()
    for step in left:
        async with running_broker(fast_path, fs=step, durability="fsync", **CREATES) as broker:
            stored = broker.shares.stored(key_of(broker))
            assert stored is not None
            state = (
                RecordState.ARCHIVED if stored.start_offset == RECORDS else next((each.state for each in stored.batches), None)
            )
            seen.add(state)
            before = len(await letters(broker))
            if state is RecordState.ARCHIVED:
                assert before == RECORDS
            if state is None:
                assert before == 0
                assert await take(broker) == [(0, 5, 1)]
                continue
            assert await take(broker) == []
            await until(lambda broker=broker: is_done(broker))  # type: ignore[misc]
            after = [told_of(each)[0] for each in await letters(broker)]
            assert set(after) == {f"{offset}*1" for offset in range(RECORDS)}
    assert seen == {None, RecordState.ARCHIVING, RecordState.ARCHIVED}
