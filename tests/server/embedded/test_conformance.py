"""One set of cases for the faces of an embedded broker, and for those of a client where it has the same calls."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol import errors
from triolog.protocol.records.partitioners import partition_for_key
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY, ExpectedOffsetError, NotRunningError
from triolog.server.storage.errors import LogDirectoryError

from tests.server.embedded.drivers import (
    EVERYWHERE,
    WITH_TASKS,
    WITH_TASKS_EVERYWHERE,
    Face,
    inside,
    on_every_face,
    turn,
    until_waited_for,
)
from tests.server.embedded.programs import is_clean
from tests.support.brokers import PATIENCE_S
from tests.support.logs import START_MS, Clock, batch

T = "topic"


async def values(follow: Any, *, commit: bool = False, count: int | None = None) -> list[bytes]:
    """Those that a follow gives, `count` of them or until it ends."""
    found: list[bytes] = []
    async for record in follow:
        found.append(record.value)
        if commit:
            await record.commit()
        if len(found) == count:
            break
    return found


@on_every_face()
async def test_topics_are_made_described_changed_and_deleted(broker: Any) -> None:
    await broker.create_topic(T, 2, {"segment.ms": "60000"})
    assert await broker.topics() == [T]
    assert (await broker.describe_topic(T)).config == {"segment.ms": "60000"}
    await broker.alter_config(T, {"retention.ms": "-1"}, ["segment.ms"])
    assert (await broker.describe_topic(T)).config == {"retention.ms": "-1"}
    await broker.create_partitions(T, 3)
    assert len((await broker.describe_topic(T)).partitions) == 3
    assert (await broker.statistics()).topic_count == 1
    with pytest.raises(errors.TopicAlreadyExistsError):
        await broker.create_topic(T)
    await broker.delete_topic(T)
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="there is no topic 'topic'"):
        await broker.fetch(T)
    with pytest.raises(errors.InvalidConfigError, match=r"no\.such"):
        await broker.create_topic(T, config={"no.such": "1"})
    assert await broker.topics() == []


@on_every_face()
async def test_keys_of_a_group_are_set_and_deleted(broker: Any) -> None:
    await broker.alter_group_config("g", {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "3"})
    await broker.alter_group_config("g", {"share.delivery.count.limit": "4"}, ["share.auto.offset.reset"])
    overrides = await inside(broker, lambda own: dict(own.core.group_configs.overrides()["g"]))
    assert overrides == {"share.delivery.count.limit": "4"}
    with pytest.raises(errors.RequestError, match=r"no\.such"):
        await broker.alter_group_config("g", {"no.such": "1"})


@on_every_face(faces=EVERYWHERE, config={"retention.ms": "-1"}, topics={T: 2})
async def test_records_are_appended_in_every_form_and_fetched_by_offset_and_time(broker: Any) -> None:
    result = await broker.append(T, [b"a", (START_MS, b"k", b"b", (("h", None),))])
    assert (result.base_offset, result.last_offset) == (0, 1)
    await broker.append(T, batch(START_MS + 5, value=b"c"), partition=1)
    first, second = await broker.fetch(T)
    assert (first.value, second.key, second.value, second.headers) == (b"a", b"k", b"b", (("h", None),))
    assert [each.value for each in await broker.fetch(T, 1)] == [b"b"]
    assert await broker.fetch(T, 2) == []
    assert (await broker.offset_for_time(T, START_MS + 5, partition=1)).offset == 0
    asked = [(TopicPartition(T, 1), START_MS), (TopicPartition(T, 1), START_MS + 6), (TopicPartition(T, 7), 0)]
    found, none, unknown = await broker.offsets_for_times(asked)
    assert (found.offset, none) == (0, (-1, -1, -1))
    assert isinstance(unknown, errors.UnknownTopicOrPartitionError)
    assert await broker.delete_records(T, 1) == 1
    assert [each.value for each in await broker.fetch(T, 1)] == [b"b"]
    assert await broker.delete_records(T) == 2
    with pytest.raises(errors.RequestError, match=r"^OFFSET_OUT_OF_RANGE"):
        await broker.fetch(T, 99)


@pytest.mark.parametrize("max_bytes", [1, 400, 2**20])
@on_every_face(faces=EVERYWHERE, config={"retention.ms": "-1", "segment.bytes": "600"})
async def test_a_range_of_times_is_the_filter_of_all_records_in_pages_too(broker: Any, max_bytes: int) -> None:
    """Times are out of order, some records have none, segments are small, batches hold more than one record."""
    times = [-1 if number % 9 == 5 else START_MS + number * 37 % 50 for number in range(90)]
    await broker.create_topic(T, 2)
    for first in range(0, 90, 3):
        some = range(first, first + 3)
        await broker.append(T, [(times[each], None, b"%d" % each, ()) for each in some], partition=1)
    await broker.delete_records(T, 10, partition=1)
    for start, end in [(0, 50), (10, 13), (49, None), (None, 1), (60, 70), (7, 7)]:
        asked = {
            "start_timestamp": None if start is None else START_MS + start,
            "end_timestamp": None if end is None else START_MS + end,
        }
        for offset in (None, 10, 44):
            wanted = [
                each
                for each in range(offset or 10, 90)
                if START_MS + (start or 0) <= times[each] < START_MS + (99 if end is None else end)
            ]
            found: list[Any] = []
            while page := await broker.fetch(
                T, found[-1].offset + 1 if found else offset, partition=1, max_bytes=max_bytes, **asked
            ):
                found += page
            assert [each.offset for each in found] == wanted
            assert [each.value for each in found] == [b"%d" % each for each in wanted]
    with pytest.raises(errors.InvalidRequestError, match=r"topic-1: end_timestamp 1 is before start_timestamp 2"):
        await broker.fetch(T, partition=1, start_timestamp=2, end_timestamp=1)
    with pytest.raises(errors.InvalidRequestError, match=r"start_timestamp is (int )?-1, expected"):
        await broker.fetch(T, partition=1, start_timestamp=-1)
    with pytest.raises(errors.RequestError, match=r"^OFFSET_OUT_OF_RANGE"):
        await broker.fetch(T, 3, partition=1, start_timestamp=START_MS)


@on_every_face(faces=EVERYWHERE, topics={T: 3})
async def test_an_append_that_expects_another_end_is_refused_with_where_that_is(broker: Any) -> None:
    where = partition_for_key(b"foobar", 3)
    assert (await broker.append(T, [b"0", b"1"], key=b"foobar", expected_offset=0)).base_offset == 0
    assert (await broker.append(T, batch(START_MS, value=b"2"), partition=where, expected_offset=2)).base_offset == 2
    for expected in (0, 2, 4):
        with pytest.raises(ExpectedOffsetError, match=f"topic-{where}: the log ends at offset 3") as refused:
            await broker.append(T, [b"never"], partition=where, expected_offset=expected)
        assert (refused.value.code, refused.value.log_end_offset) == (errors.ErrorCode.OFFSET_OUT_OF_RANGE, 3)
    with pytest.raises(errors.InvalidRequestError, match=r"expected_offset is (int )?-1, expected"):
        await broker.append(T, [b"never"], partition=where, expected_offset=-1)
    assert [each.value for each in await broker.fetch(T, partition=where)] == [b"0", b"1", b"2"]


@on_every_face(faces=EVERYWHERE, topics={T: 3})
async def test_a_key_says_the_partition_as_in_clients_of_kafka(broker: Any) -> None:
    """The partitions of these keys are what Kafka's Utils.murmur2 gives."""
    keys = [b"21", b"foobar", b"a-little-bit-long-string"]
    for key in keys:
        await broker.append(T, [b"of " + key], key=key)
    for partition in range(3):
        found = await broker.fetch(T, partition=partition)
        expected = [key for key in keys if partition_for_key(key, 3) == partition]
        assert [(each.key, each.value) for each in found] == [(key, b"of " + key) for key in expected]
    await broker.append(T, [b"there"], key=b"21", partition=2)
    assert (await broker.fetch(T, partition=2))[-1].key == b"21"


@on_every_face(faces=EVERYWHERE, topics={T: 3})
async def test_records_of_many_keys_go_each_to_its_partition(broker: Any) -> None:
    keys = [b"%d" % number for number in range(20)]
    stored = await broker.append_by_key(T, [(None, key, key, ()) for key in keys])
    for partition, result in stored.items():
        found = await broker.fetch(T, partition=partition)
        assert [each.value for each in found] == [key for key in keys if partition_for_key(key, 3) == partition]
        assert result.last_offset == len(found) - 1
    together = [await broker.append_by_key(T, [b"a", b"b"]) for _ in range(3)]
    assert [sorted(each) for each in together].count([0]) == 1
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await broker.append_by_key("gone", [b"a"])


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_group_goes_on_where_it_has_committed(broker: Any) -> None:
    await broker.append(T, [b"0", b"1", b"2", b"3"])
    assert await values(broker.follow(T, group="g"), commit=True, count=2) == [b"0", b"1"]
    assert await broker.groups.committed("g") == {TopicPartition(T, 0): 2}
    follow = broker.follow(T, group="g")
    assert await values(follow, count=1) == [b"2"]
    assert await values(broker.follow(T, group="g"), count=2) == [b"2", b"3"]  # at least once
    await follow.commit()
    assert await follow.positions() == {TopicPartition(T, 0): 3}
    assert await values(broker.follow(T, group="g", max_wait_s=0)) == [b"3"]
    assert await values(broker.follow(T, group="other", max_wait_s=0)) == [b"0", b"1", b"2", b"3"]


@on_every_face(faces=EVERYWHERE)
async def test_what_was_committed_is_there_when_the_broker_is_opened_again(opened: Any, tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await broker.create_topic(T)
        await broker.append(T, [b"0", b"1"])
        await values(broker.follow(T, group="g"), commit=True, count=1)
    async with opened(tmp_path) as broker:
        assert await values(broker.follow(T, group="g", max_wait_s=0)) == [b"1"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({}, [b"0", b"1", b"2"]),
        ({"start": "latest"}, []),
        ({"start_offset": 1}, [b"1", b"2"]),
        ({"start_offset": 99}, []),
        ({"start_timestamp": START_MS + 11}, [b"2"]),
        ({"start_timestamp": START_MS + 99}, []),
    ],
    ids=str,
)
@on_every_face(faces=EVERYWHERE, config={"retention.ms": "-1"}, topics=[T])
async def test_a_follow_without_a_place_starts_as_told(broker: Any, start: dict[str, Any], expected: list[bytes]) -> None:
    await broker.append(T, [(START_MS + 10 * number, None, b"%d" % number, ()) for number in range(3)])
    follow = broker.follow(T, group="new", max_wait_s=0, **start)
    assert await values(follow) == expected
    await broker.append(T, [b"later"])
    assert await values(follow) == [b"later"]


@on_every_face(faces=EVERYWHERE, topics={T: 2})
async def test_a_follow_has_all_partitions_and_those_that_come(broker: Any) -> None:
    await broker.create_topic("more")
    follow = broker.follow([T, "more"], start="latest", max_wait_s=0)
    assert await values(follow) == []
    await broker.append(T, [b"a"], partition=1)
    await broker.append("more", [b"b"])
    assert sorted(await values(follow)) == [b"a", b"b"]
    await broker.create_partitions(T, 4)
    await broker.append(T, [b"c"], partition=3)
    await broker.append(T, [b"d"])
    assert sorted(await values(follow)) == [b"c", b"d"]


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_follow_that_waits_notices_partitions_that_come(broker: Any) -> None:
    """It has looked once: what is appended to the new partition wakes nobody who waits for the old one."""
    follow = broker.follow(T)
    await follow.positions()
    await broker.create_partitions(T, 2)
    await broker.append(T, [b"new"], partition=1)
    assert await values(follow, count=1) == [b"new"]


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_follow_goes_on_behind_records_that_were_deleted(broker: Any) -> None:
    await broker.append(T, [b"0", b"1", b"2"])
    follow = broker.follow(T, group="g", max_wait_s=0)
    await follow.positions()
    await broker.delete_records(T, 2)
    assert await values(follow, commit=True) == [b"2"]
    await broker.append(T, [b"3", b"4"])
    await broker.delete_records(T, 4)
    assert await values(broker.follow(T, group="g", max_wait_s=0)) == [b"4"]


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_follow_of_a_topic_that_goes_says_so_and_begins_with_one_that_comes(broker: Any) -> None:
    await broker.append(T, [b"old"] * 3)
    follow = broker.follow(T, max_wait_s=0)
    assert len(await values(follow)) == 3
    await broker.delete_topic(T)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await values(follow)
    await broker.create_topic(T)
    await broker.append(T, [b"new"])
    assert await values(follow) == [b"new"]


@on_every_face(faces=EVERYWHERE, topics={T: 2, "small": 2})
async def test_a_follow_reads_on_in_small_reads_and_large_ones(broker: Any) -> None:
    """4,500 records are three reads at least; of 1 byte each read is one record."""
    for topic, count, max_bytes in (("small", 90, 1), (T, 4500, 2**20)):
        wanted = [b"%d" % number for number in range(count)]
        for part in range(9):
            await broker.append(topic, wanted[part * count // 9 :][: count // 9], partition=part % 2)
        found = await values(broker.follow(topic, max_bytes=max_bytes, max_wait_s=0))
        assert sorted(found) == sorted(wanted)


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_what_a_follow_cannot_do_is_said(broker: Any) -> None:
    await broker.append(T, [b"0"])
    follow = broker.follow(T)
    await values(follow, count=1)
    with pytest.raises(errors.InvalidRequestError, match="without a group"):
        await follow.commit()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await values(broker.follow("gone"))
    with pytest.raises(ValueError, match="start, start_offset or start_timestamp"):
        broker.follow(T, start="latest", start_offset=1)
    with pytest.raises(ValueError, match="earliest or latest, not 'newest'"):
        broker.follow(T, start="newest")
    with pytest.raises(ValueError, match="no topic"):
        broker.follow([])


@on_every_face(topics=[T])
async def test_a_follow_goes_on_after_a_crash_and_a_restart(broker: Any) -> None:
    await broker.append(T, [b"0"])
    follow = broker.follow(T, max_wait_s=0)
    assert await values(follow) == [b"0"]
    await broker.append(T, [b"1"])
    await broker.crash()
    with pytest.raises(NotRunningError):
        await values(follow)
    await broker.restart()
    assert await values(follow) == [b"1"]


@on_every_face(faces=EVERYWHERE)
async def test_a_transaction_is_all_or_nothing(broker: Any) -> None:
    await broker.create_topic("in")
    await broker.create_topic("out", 2)
    await broker.append("in", [b"1", b"2"])
    follow = broker.follow("in", group="copier")
    assert await values(follow, count=2) == [b"1", b"2"]
    async with broker.transaction("copier") as transaction:
        await transaction.append("out", [b"one"])
        await transaction.append("out", [b"two", b"three"], partition=1)
        await transaction.append("out", [b"four"], partition=1)
        await transaction.commit_offsets("copier", await follow.positions())
        assert await values(broker.follow("out", max_wait_s=0)) == []
        assert await broker.groups.committed("copier") == {}
        seen = broker.follow("out", committed_only=False, max_wait_s=0)
        assert sorted(await values(seen)) == [b"four", b"one", b"three", b"two"]
    assert sorted(await values(broker.follow("out", max_wait_s=0))) == [b"four", b"one", b"three", b"two"]
    assert await broker.groups.committed("copier") == {TopicPartition("in", 0): 2}


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_transaction_that_an_exception_leaves_is_aborted(broker: Any) -> None:

    async def fail() -> None:
        async with broker.transaction("id") as transaction:
            await transaction.append(T, [b"never"])
            await transaction.commit_offsets("g", {TopicPartition(T, 0): 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with broker.transaction("id") as transaction:
        await transaction.append(T, [b"kept"], key=b"k")
    follow = broker.follow(T, group="g", max_wait_s=0)
    assert await values(follow, commit=True) == [b"kept"]
    await follow.commit()
    assert await broker.groups.lag("g") == 0  # it is behind the marker


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_transaction_after_something_failed_can_only_be_aborted(broker: Any) -> None:

    async def fail() -> None:
        async with broker.transaction("id") as transaction:
            await transaction.append(T, [b"never"])
            with pytest.raises(errors.UnknownTopicOrPartitionError):
                await transaction.append("gone", [b"x"])

    with pytest.raises(errors.InvalidTxnStateError, match=r"can only be aborted: an append to gone-0"):
        await fail()
    assert await values(broker.follow(T, max_wait_s=0)) == []


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_transaction_is_fenced_off_by_the_next_of_its_id(broker: Any) -> None:
    older = broker.transaction("id")
    await older.begin()
    await older.append(T, [b"never"])
    async with broker.transaction("id") as newer:
        await newer.append(T, [b"kept"])
    with pytest.raises(errors.RequestError) as refused:
        await older.commit()
    assert refused.value.code in (errors.ErrorCode.PRODUCER_FENCED, errors.ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await values(broker.follow(T, max_wait_s=0)) == [b"kept"]


@on_every_face(faces=EVERYWHERE, topics=[T])
async def test_a_transaction_by_its_methods(broker: Any) -> None:
    transaction = broker.transaction("id")
    with pytest.raises(errors.InvalidTxnStateError, match=r"no transaction of|Begin one first"):
        await transaction.append(T, [b"x"])
    await transaction.begin()
    with pytest.raises(errors.InvalidTxnStateError, match=r"already begun|is open"):
        await transaction.begin()
    await transaction.append(T, [b"never"])
    await transaction.abort()
    await transaction.begin()
    await transaction.append(T, [b"kept"])
    await transaction.commit()
    async with broker.transaction("id"):
        pass
    assert await values(broker.follow(T, max_wait_s=0)) == [b"kept"]


HOUR_S = 3600


@on_every_face(MEMORY, faces=WITH_TASKS_EVERYWHERE, topics=[T])
async def test_a_fetch_that_is_cancelled_waits_no_more(broker: Any, begin: Any) -> None:
    call = begin(partial(broker.fetch, T, max_wait_s=HOUR_S))
    await until_waited_for(broker, T)
    await call.cancel()
    await until_waited_for(broker, T, count=0)


@on_every_face(MEMORY, faces=WITH_TASKS_EVERYWHERE, topics=[T])
async def test_an_append_that_is_cancelled_before_it_is_handed_over_has_not_happened(broker: Any, begin: Any) -> None:
    await begin(partial(broker.append, T, [b"never"])).cancel()
    assert (await broker.append(T, [b"first"])).base_offset == 0


@on_every_face(MEMORY, faces=WITH_TASKS, topics=[T], durability="fsync")
async def test_an_append_that_is_cancelled_while_the_device_syncs_is_there_all_the_same(broker: Any, begin: Any) -> None:
    """It was enqueued: the outcome is unknown to its task."""
    rule = {"operation": "sync", "path": "*.log", "delay_ms": HOUR_S * 1000}
    fault = await inside(broker, lambda own: own.faults.disk("delay", **rule))
    call = begin(partial(broker.append, T, [b"a"]))
    await inside(broker, lambda own: fault.wait_fired(timeout_s=PATIENCE_S))
    await call.cancel()
    await inside(broker, lambda own: fault.release())
    assert [each.value for each in await broker.fetch(T, max_wait_s=PATIENCE_S)] == [b"a"]


API_VERSIONS = bytes.fromhex("00000010 0012 0000 00000007 0006") + b"tester"


def versions_of(kafka: Any) -> bytes:
    """Return the header of the response to ApiVersions."""
    with socket.create_connection((kafka.host, kafka.port), PATIENCE_S) as client:
        client.sendall(API_VERSIONS)
        return client.recv(8, socket.MSG_WAITALL)[4:]


@on_every_face()
async def test_a_request_is_held_by_a_fault_seen_and_released(opened: Any) -> None:
    with ThreadPoolExecutor(1) as beside:
        async with opened(MEMORY, kafka="127.0.0.1:0") as broker:
            fault = Face(await broker.faults.add("ApiVersions", hold=True))
            response = beside.submit(versions_of, broker.kafka)
            assert await fault.wait_fired(timeout_s=PATIENCE_S) == 1
            [held] = await broker.requests.find("ApiVersions", answered=False)
            assert (held.client_id, held.fault, held.number) == ("tester", fault.number, broker.requests.target.last)
            await fault.release()
            assert await broker.requests.wait_for("ApiVersions", answered=True, timeout_s=PATIENCE_S) == [held]
            assert (fault.matched, fault.fired) == (1, 1)
            assert await broker.requests.tail() == str(held)
            await broker.requests.clear()
            assert await broker.requests.count() == 0
        assert response.result() == bytes.fromhex("00000007")


@on_every_face(MEMORY, topics=[T])
async def test_faults_of_the_device_and_of_groups_are_listed_and_cleared(broker: Any) -> None:
    full, frozen = await broker.faults.disk("full", path=f"{T}-0/*"), await broker.groups.freeze("g")
    assert [each.number for each in await broker.faults.of_disk()] == [full.number]
    assert await inside(broker, lambda own: [each.number for each in own.faults]) == [frozen.number]
    await broker.faults.clear()
    assert await broker.faults.of_disk() == []
    assert await inside(broker, lambda own: list(own.faults)) == []


@on_every_face(MEMORY, faces=WITH_TASKS_EVERYWHERE, topics=[T])
async def test_a_cancelled_follow_loses_nothing(broker: Any, begin: Any) -> None:
    follow = broker.follow(T)
    for number in range(3):
        call = begin(follow.__anext__)
        await until_waited_for(broker, T)
        await call.cancel()
        await broker.append(T, [b"%d" % number])
        assert (await anext(follow)).value == b"%d" % number


@on_every_face(MEMORY, faces=WITH_TASKS_EVERYWHERE, topics=[T])
async def test_a_transaction_whose_block_is_cancelled_is_aborted(broker: Any, begin: Any) -> None:
    async def work() -> None:
        async with broker.transaction("id") as transaction:
            await transaction.append(T, [b"never"])
            await broker.fetch(T, 1, max_wait_s=HOUR_S)

    call = begin(work)
    await until_waited_for(broker, T)
    await call.cancel()
    assert await broker.log(T).values() == []
    assert await broker.log(T).end_offsets() == {0: 2}, "an open transaction would keep readers from what follows"


@on_every_face(MEMORY, faces=WITH_TASKS_EVERYWHERE, topics=[T])
async def test_a_follow_lets_other_tasks_run(broker: Any, begin: Any) -> None:
    """At the latest after one read, of 2,000 records or `max_bytes`."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await turn()

    call = begin(other)
    for count, keywords in ((1, {"max_bytes": 1}), (2000, {})):
        for _ in range(2):
            await broker.append(T, [b"x"] * count)
        turns = 0
        assert len(await values(broker.follow(T, max_wait_s=0, **keywords))) >= 2 * count
        assert turns >= 2
    await call.cancel()


@on_every_face(faces=WITH_TASKS)
async def test_a_cancelled_block_ends_in_a_clean_stop(opened: Any, begin: Any, tmp_path: Path) -> None:
    has_appended = False

    async def program() -> None:
        nonlocal has_appended
        async with opened(tmp_path, topics=[T]) as broker:
            await broker.append(T, [b"kept"])
            has_appended = True
            await broker.fetch(T, 1, max_wait_s=HOUR_S)

    call = begin(program)
    while not has_appended:
        await turn()
    await call.cancel()
    assert is_clean(tmp_path)
    async with opened(tmp_path) as broker:
        assert [each.value for each in await broker.fetch(T)] == [b"kept"]


@on_every_face(faces=WITH_TASKS)
async def test_a_start_that_is_cancelled_leaves_nothing(opened: Any, begin: Any, tmp_path: Path) -> None:
    async def program() -> None:
        async with opened(tmp_path):
            pytest.fail("cancelled blocks do not begin")

    for turns in range(3):
        call = begin(program)
        for _ in range(turns):
            await turn()
        await call.cancel()
    async with opened(tmp_path):
        """It is free."""


@on_every_face()
async def test_a_directory_that_nobody_named_goes_with_the_broker(opened: Any) -> None:
    for path in (None, MEMORY):
        async with opened(path, topics=[T]) as broker:
            directory = Path(broker.path)
            assert directory.is_dir()
            assert broker.path.startswith("/dev/shm/" if path and Path("/dev/shm").is_dir() else "/")
            await broker.append(T, [b"a"])
        assert not directory.exists()


@on_every_face()
async def test_with_a_path_the_records_stay(opened: Any, tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    async with opened(directory, topics=[T]) as broker:
        assert broker.path == str(directory)
        await broker.append(T, [b"kept"])
    assert is_clean(directory)
    async with opened(str(directory)) as broker:
        assert [each.value for each in await broker.fetch(T)] == [b"kept"]


@on_every_face()
async def test_defaults_of_all_topics_and_the_clock_are_the_callers(opened: Any) -> None:
    clock = Clock()
    async with opened(config={"message.timestamp.type": "LogAppendTime"}, now_ms=clock, topics=[T]) as broker:
        assert (await broker.append(T, [(1, None, b"x", ())])).log_append_time == START_MS
        clock.advance(50)
        assert (await broker.append(T, [b"y"])).log_append_time == START_MS + 50
        assert [each.timestamp for each in await broker.fetch(T)] == [START_MS, START_MS + 50]


@on_every_face()
async def test_settings_that_are_wrong_are_refused_before_anything_is_made(opened: Any, tmp_path: Path) -> None:
    for settings, error, said in (
        ({"durability": "maybe"}, ValueError, "not one of fsync"),
        ({"config": {"no.such": "1"}}, errors.InvalidConfigError, r"no\.such"),
        ({"colour": "blue"}, TypeError, "colour"),
    ):
        with pytest.raises(error, match=said):
            async with opened(tmp_path / "data", **settings):
                pytest.fail("it was opened")
    assert list(tmp_path.iterdir()) == []


@on_every_face()
async def test_a_second_broker_on_a_path_is_refused_by_its_name(opened: Any, tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(LogDirectoryError, match=f"holds the lock of log directory {tmp_path}"):
            async with opened(tmp_path):
                pass


@on_every_face(topics=[T])
async def test_a_fork_and_a_log_are_there_too(broker: Any) -> None:
    await broker.log(T).append([b"a", b"b"])
    assert await broker.log(T).values() == [b"a", b"b"]
    assert await broker.log(T).end_offsets() == {0: 2}
    assert isinstance(broker.path, str)
    assert (broker.native, broker.kafka, broker.metrics) == (None, None, None)
    await broker.reset()
    assert await broker.log(T).values() == []


@on_every_face(topics={T: 2}, config={"retention.ms": "-1"})
async def test_a_log_appends_and_fetches_as_its_broker_does(broker: Any) -> None:
    result = await broker.log(T).append(["a", (7, b"k", b"b", ())], key="key", headers={"name": b"value"}, timestamp_ms=5)
    partition = partition_for_key(b"key", 2)
    records = await broker.fetch(T, partition=partition)
    assert [(each.timestamp, each.key, each.value, each.headers) for each in records] == [
        (5, b"key", b"a", (("name", b"value"),)),
        (7, b"k", b"b", ()),
    ]
    assert await broker.append(T, [b"c"], key=b"key") == result._replace(base_offset=2, last_offset=2)
    assert [each.offset for each in await broker.log(T).fetch(1, partition=partition)] == [1, 2]
    assert [each.value for each in await broker.log(T).fetch()] == [b"a", b"b", b"c"]
    with pytest.raises(TypeError, match=r"expected a list: append\(\['a'\]\)"):
        await broker.log(T).append("a")
