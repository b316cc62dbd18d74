"""Staging and committing through the broker's door: what is appended, what is refused, what is remembered."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock
from triolog.protocol.errors import CorruptRecordError, ErrorCode, InvalidRequestError, InvalidTopicError, RequestError
from triolog.protocol.records.batch import with_producer
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, Committed, StagedBytes, StagedShare, StageWrite
from triolog.server.stages import stage_appends
from triolog.server.stages.stage_files import find_staged, stage_name
from triolog.server.stages.stages import SMALLEST_FILE_BYTES
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import STAGE_DIRECTORY
from triolog.server.storage.errors import LogOfflineError

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS, Clock

OTHER: Final = TopicPartition(TOPIC, 1)
APPLICATION: Final = "query"


def batch(*texts: str) -> bytes:
    return build_batch([(START_MS, None, text.encode(), ()) for text in texts])


async def stage(
    broker: Broker,
    task: str,
    *texts: str,
    version: int = 0,
    partition: TopicPartition = PARTITION,
    application: str = APPLICATION,
) -> StagedShare:
    """Stage one batch; answers what a commit names of the task and the partition."""
    write = await broker.stages.announce(application, version, task, partition, batch(*texts))
    return StagedShare(task, partition, await broker.stages.write(write))


@pytest.mark.parametrize("restarts", [False, True])
async def test_staged_records_are_seen_when_they_are_committed_and_not_before(tmp_path: Path, restarts: bool) -> None:
    """They and the last commit outlive a restart."""
    async with one_partition(tmp_path) as broker:
        assert broker.stage_commits.last_version(APPLICATION) is None
        await stage(broker, "1", "a", "b", version=7)
        assert await values_from(broker) == []
        if not restarts:
            await check_commit(broker)
    found = read_directory(OsFileSystem(), str(tmp_path))
    assert (found.foreign, found.marked) == ((), ())
    async with one_partition(tmp_path) as broker:
        if restarts:
            await check_commit(broker)
        assert broker.stage_commits.last_version(APPLICATION) == 7
        again = await broker.stage_commits.commit(APPLICATION, 7, [])
        assert (again.by_this_call, len(again.partitions)) == (False, 1)
        assert await broker.stage_commits.commit(APPLICATION, 9, []) == (True, ())
        assert await broker.stage_commits.commit(APPLICATION, 9, []) == (False, ())
        assert broker.stage_commits.last_version(APPLICATION) == 9
        assert await values_from(broker) == [b"a", b"b", b"c"]


async def check_commit(broker: Broker) -> None:
    committed = await broker.stage_commits.commit(APPLICATION, 7, [await stage(broker, "1", "c", version=7)])
    assert committed.by_this_call
    assert await values_from(broker) == [b"a", b"b", b"c"]
    [place] = committed.partitions
    assert (place.base_offset, place.end_offset) == (0, 3)


async def test_a_version_is_committed_once_and_each_call_gets_the_same_answer(broker: Broker) -> None:
    share = await stage(broker, "1", "a")
    answers: list[Committed] = []

    async def commit(share: StagedShare) -> None:
        answers.append(await broker.stage_commits.commit(APPLICATION, 0, [share]))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(commit, share)
    await commit(share)
    await commit(await stage(broker, "1.1", "a"))
    assert sorted(answer.by_this_call for answer in answers) == [False] * 6 + [True]
    assert len({answer.partitions for answer in answers}) == 1
    assert await values_from(broker) == [b"a"]
    assert broker.stage_commits.stages.staged_bytes == 0


async def test_a_decided_commit_is_carried_out_from_where_it_was_cut_off(tmp_path: Path) -> None:
    """Only the rest is appended: what is there is found by the producer id, behind the offset of the decision."""
    async with one_partition(tmp_path) as broker:
        for text in "abc":
            share = await stage(broker, "1", text)
        await decide(broker, [share])
        decided = broker.stage_commits.log.applications[APPLICATION].value
        assert decided is not None
        [(_, file, _)] = find_staged(OsFileSystem(), str(tmp_path))
        first = Path(file).read_bytes()[: len(batch("a"))]
        await broker.writer.append(PARTITION, with_producer(first, decided.producer_id, 0, 0))
        await broker.writer.append(PARTITION, value("x"))
        assert await values_from(broker) == [b"a", b"x"]
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [b"a", b"x", b"b", b"c"]
        assert list(find_staged(OsFileSystem(), str(tmp_path))) == []
        [place] = (await broker.stage_commits.commit(APPLICATION, 0, [share])).partitions
        assert (place.base_offset, place.end_offset) == (0, 4)


async def test_records_of_a_partition_come_in_the_order_of_the_tasks_and_only_named_tasks_count(broker: Broker) -> None:
    await stage(broker, "0.0", "zombie")
    second = await stage(broker, "1.0", "c")
    first = await stage(broker, "0.1", "a", "b")
    await broker.stage_commits.commit(APPLICATION, 0, [first, second])
    assert await values_from(broker) == [b"a", b"b", b"c"]
    assert broker.stage_commits.stages.staged_bytes == 0
    for application in ("x" * 255, "ü/../..", "x"):
        share = await stage(broker, "1/..", application, application=application)
        assert (await broker.stage_commits.commit(application, 0, [share])).by_this_call, "applications are for themselves"
    assert (await values_from(broker))[3:] == [b"x" * 255, "ü/../..".encode(), b"x"]


async def test_a_commit_of_many_batches_is_one_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the epochs of a producer are used up the next commit has another one."""
    monkeypatch.setattr(stage_appends, "APPEND_BYTES", 200)
    async with one_partition(tmp_path, topic={"segment.bytes": "1000"}) as broker:
        texts = [str(number) for number in range(100)]
        for text in texts:
            share = await stage(broker, "1", text, "x")
        [place] = (await broker.stage_commits.commit(APPLICATION, 0, [share])).partitions
        assert (place.base_offset, place.end_offset) == (0, 200)
        assert (await values_from(broker))[::2] == [text.encode() for text in texts]
        [entry] = actor_of(broker).log.producers.entries.values()
        assert entry.last_sequence == 199
        owner = broker.stage_commits.log.applications[APPLICATION]
        assert owner.value is not None
        owner.value = attrs.evolve(owner.value, producer_epoch=2**15 - 1)
        await broker.stage_commits.commit(APPLICATION, 1, [await stage(broker, "1", "b", version=1)])
        assert [entry.epoch for entry in actor_of(broker).log.producers.entries.values()] == [0, 0]


async def test_commits_of_an_application_leave_one_producer_in_a_partition(tmp_path: Path) -> None:
    async with one_partition(tmp_path, max_producers_per_partition=1) as broker:
        for version in range(5):
            share = await stage(broker, "1", str(version), version=version)
            await broker.stage_commits.commit(APPLICATION, version, [share])
        await broker.stage_commits.commit(APPLICATION, 5, [])
        [entry] = actor_of(broker).log.producers.entries.values()
        assert (entry.epoch, entry.last_sequence) == (4, 0)
        share = await stage(broker, "1", "x", application="another")
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*max_producers_per_partition=1"):
            await broker.stage_commits.commit("another", 0, [share])
        assert broker.stage_commits.last_version("another") is None
        assert len(await values_from(broker)) == 5


async def test_a_version_below_the_last_one_changes_nothing_and_its_files_go(tmp_path: Path) -> None:
    """With the commit, or at the next start."""
    async with one_partition(tmp_path) as broker:
        await broker.stage_commits.commit(APPLICATION, 5, [await stage(broker, "1", "a", version=5)])
        late = await stage(broker, "1", "late", version=4)
        assert await broker.stage_commits.commit(APPLICATION, 4, [late]) == (False, ())
        assert await values_from(broker) == [b"a"]
        assert broker.stage_commits.stages.staged_bytes == 0
        for version in (3, 9):
            await stage(broker, "1", "a", version=version)
    async with one_partition(tmp_path) as broker:
        assert broker.stage_commits.stages.names() == [stage_name(APPLICATION, 9)]


async def test_a_commit_that_was_cancelled_when_it_was_decided_is_carried_out(broker: Broker) -> None:
    share = await stage(broker, "1", "a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.stage_commits.commit, APPLICATION, 0, [share])
        await until(lambda: broker.stage_commits.last_version(APPLICATION) == 0)
        nursery.cancel_scope.cancel()
    await until(lambda: APPLICATION not in broker.stage_commits.log.turns)
    answer = await broker.stage_commits.commit(APPLICATION, 0, [])
    assert not answer.by_this_call
    assert await values_from(broker) == [b"a"]


@pytest.mark.parametrize(
    ("change", "code", "complaint"),
    [
        ({"size_bytes": 1}, ErrorCode.INVALID_REQUEST, "topic-0: task '1' has 70 bytes staged, the commit names 1"),
        (
            {"crc": 1},
            ErrorCode.CORRUPT_MESSAGE,
            "topic-0: task '1' has 70 bytes with CRC 0x[0-9a-f]+ staged in .*, the commit names 0x00000001",
        ),
        ({"task": "2"}, ErrorCode.INVALID_REQUEST, "topic-0: task '2' has nothing staged"),
        ({"topic_partition": OTHER}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has partitions 0 to 0, not 1"),
        ({"topic_partition": TopicPartition("no", 0)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'no'"),
        ({"topic_partition": TopicPartition("__stage_commits", 0)}, ErrorCode.INVALID_TOPIC_EXCEPTION, "belongs to the server"),
    ],
    ids=str,
)
async def test_a_wrong_commit_changes_nothing(broker: Broker, change: dict[str, Any], code: ErrorCode, complaint: str) -> None:
    share = await stage(broker, "1", "aa")
    staged = share.staged._replace(**{key: number for key, number in change.items() if key in ("size_bytes", "crc")})
    wrong = share._replace(staged=staged)._replace(**{key: each for key, each in change.items() if key in share._fields})
    with pytest.raises(RequestError, match=complaint) as caught:
        await broker.stage_commits.commit(APPLICATION, 0, [wrong])
    assert caught.value.code is code
    with pytest.raises(InvalidRequestError, match="topic-0: task '1' is named twice for one partition"):
        await broker.stage_commits.commit(APPLICATION, 0, [share, share])
    assert broker.stage_commits.last_version(APPLICATION) is None
    assert await values_from(broker) == []
    assert (await broker.stage_commits.commit(APPLICATION, 0, [share])).by_this_call


async def test_bytes_that_changed_on_the_device_are_refused(tmp_path: Path, broker: Broker) -> None:
    share = await stage(broker, "1", "a")
    [(_, path, _)] = find_staged(OsFileSystem(), str(tmp_path))
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(CorruptRecordError, match="staged in"):
        await broker.stage_commits.commit(APPLICATION, 0, [share])


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        (b"\0" * 80, "magic"),
        (batch("a")[:-1], "the last batch is incomplete"),
        (batch("a")[:-1] + b"?", "CRC"),
        (bytes(with_producer(batch("a"), 7, 0, 0)), "a batch to stage has producer 7\\. It must have none"),
    ],
)
async def test_what_an_append_would_refuse_is_not_staged(broker: Broker, records: bytes, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        await broker.stages.announce(APPLICATION, 0, "1", PARTITION, records)
    with pytest.raises(InvalidTopicError):
        await broker.stages.announce(APPLICATION, 0, "1", TopicPartition("__stage_commits", 0), batch("a"))
    assert broker.stage_commits.stages.staged_bytes == 0
    assert broker.stage_commits.stages.names() == []


async def test_staging_nothing_returns_how_much_is_there_and_takes_no_space(broker: Broker) -> None:
    share = await stage(broker, "1", "a")
    names, staged = broker.stage_commits.stages.names(), broker.stage_commits.stages.staged_bytes
    for task, expected in (("1", share.staged), ("2", (0, 0)), ("3", (0, 0))):
        assert await broker.stages.write(await broker.stages.announce(APPLICATION, 0, task, PARTITION, b"")) == expected
    assert (broker.stage_commits.stages.names(), broker.stage_commits.stages.staged_bytes) == (names, staged)


async def test_what_is_staged_has_a_limit(tmp_path: Path) -> None:
    async with one_partition(tmp_path, max_staged_bytes=3 * SMALLEST_FILE_BYTES) as broker:
        for task in "123":
            await stage(broker, task, "a")
        with pytest.raises(RequestError, match=r"^THROTTLING_QUOTA_EXCEEDED.*staged 12288 bytes, 69 more"):
            await stage(broker, "4", "a")
        await stage(broker, "3", "b")
        await broker.stage_commits.abort(APPLICATION, 0, ["1"])
        await stage(broker, "4", "a")


async def test_a_file_that_refused_a_write_takes_no_more(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / STAGE_DIRECTORY).write_bytes(b"in the way")
    for _ in range(2):
        with pytest.raises(LogOfflineError, match="Nothing more can be staged there: abort the task"):
            await stage(broker, "1", "a")
    (tmp_path / STAGE_DIRECTORY).unlink()
    share = await stage(broker, "2", "a")
    with pytest.raises(InvalidRequestError, match="task '1' cannot be committed"):
        await broker.stage_commits.commit(APPLICATION, 0, [share._replace(task="1")])
    assert (await broker.stage_commits.commit(APPLICATION, 0, [share])).by_this_call


async def test_a_write_that_was_cancelled_leaves_no_hole(broker: Broker) -> None:
    first = await broker.stages.announce(APPLICATION, 0, "1", PARTITION, batch("a"))
    second = await broker.stages.announce(APPLICATION, 0, "1", PARTITION, batch("b"))
    third = await broker.stages.announce(APPLICATION, 0, "1", PARTITION, batch("c"))
    await broker.stages.write(first)
    with trio.CancelScope() as scope:
        scope.cancel()
        await broker.stages.write(second)
    with pytest.raises(LogOfflineError, match="were not written"):
        await broker.stages.write(third)


async def test_writes_happen_in_the_order_in_which_they_were_announced(broker: Broker) -> None:
    texts = [str(number) for number in range(20)]
    writes = [await broker.stages.announce(APPLICATION, 0, "1", PARTITION, batch(text)) for text in texts]
    answers: list[StagedBytes] = []

    async def write(each: StageWrite) -> None:
        answers.append(await broker.stages.write(each))

    async with trio.open_nursery() as nursery:
        for each in reversed(writes):
            nursery.start_soon(write, each)
    assert answers == sorted(answers)
    await broker.stage_commits.commit(APPLICATION, 0, [StagedShare("1", PARTITION, answers[-1])])
    assert await values_from(broker) == [text.encode() for text in texts]


async def test_an_abort_takes_what_is_staged_and_never_a_commit(broker: Broker) -> None:
    first, second = await stage(broker, "1", "a"), await stage(broker, "2", "b")
    await broker.stage_commits.abort(APPLICATION, 0, ["2", "3"])
    with pytest.raises(InvalidRequestError, match="task '2' has nothing staged"):
        await broker.stage_commits.commit(APPLICATION, 0, [first, second])
    assert (await broker.stage_commits.commit(APPLICATION, 0, [first])).by_this_call
    await broker.stage_commits.abort(APPLICATION, 0)
    assert await values_from(broker) == [b"a"]
    assert broker.stage_commits.last_version(APPLICATION) == 0
    await broker.stage_commits.abort("nobody", 9)


async def test_staging_under_the_same_name_while_that_is_thrown_away_waits_for_it(tmp_path: Path, broker: Broker) -> None:
    async def stage_again(*, is_cancelled: bool) -> None:
        with trio.CancelScope() as scope, contextlib.suppress(LogOfflineError):
            if is_cancelled:
                scope.cancel()
            await stage(broker, "1", "a")

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(partial(stage_again, is_cancelled=number % 3 == 1))
            nursery.start_soon(broker.stage_commits.stages.drop, APPLICATION, 0)
            await trio.lowlevel.checkpoint()
    await broker.stage_commits.stages.drop(APPLICATION, 0)
    assert list(find_staged(OsFileSystem(), str(tmp_path))) == []
    assert broker.stage_commits.stages.staged_bytes == 0
    share = await stage(broker, "1", "b")
    await broker.stage_commits.commit(APPLICATION, 0, [share])
    assert await values_from(broker) == [b"b"]


async def test_what_nobody_touches_is_thrown_away_after_its_time(tmp_path: Path, mock_clock: MockClock) -> None:
    async with one_partition(tmp_path, stage_retention_ms=1000) as broker:
        await stage(broker, "1", "a")
        mock_clock.jump(5)
        await until(lambda: not list((tmp_path / STAGE_DIRECTORY).iterdir()))
        assert broker.stage_commits.stages.names() == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_file_whose_sync_failed_is_written_again(tmp_path: Path, fs: GateFileSystem, restarts: bool) -> None:
    """The second sync would succeed: the kernel has forgotten what it could not write."""
    async with one_partition(tmp_path, fs=fs) as broker:
        share, name = await stage(broker, "1", "a"), broker.stage_commits.stages.file_name("1", PARTITION)
        fs.fail("sync", name, number=errno.EIO)
        with pytest.raises(LogOfflineError, match=r"cannot (be synced|sync).* to the device"):
            await broker.stage_commits.commit(APPLICATION, 0, [share])
        if not restarts:
            await broker.stage_commits.commit(APPLICATION, 0, [share])
    if restarts:
        async with one_partition(tmp_path, fs=fs) as broker:
            await broker.stage_commits.commit(APPLICATION, 0, [share])
    done = [(call.operation, Path(call.path).name) for call in fs.calls if call.operation in ("write", "rename", "sync")]
    again = [("write", f"{name}.tmp"), ("rename", f"{name}.tmp"), ("sync", name)]
    assert [each for each in done if name in each[1]] == [("write", name), ("sync", name), *again]


async def test_an_application_that_is_silent_for_long_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    async with one_partition(tmp_path, clock=clock, stage_commit_expiration_ms=5000) as broker:
        await broker.stage_commits.commit(APPLICATION, 0, [])
        clock.advance(4999)
        assert await broker.stage_commits.expire() == 0
        clock.advance(1)
        assert await broker.stage_commits.expire() == 1
        assert broker.stage_commits.last_version(APPLICATION) is None
    async with one_partition(tmp_path, clock=clock) as broker:
        assert broker.stage_commits.last_version(APPLICATION) is None


async def test_a_partition_that_refuses_is_tried_again_and_the_others_are_not_appended_to_twice(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 2)
        shares = [await stage(broker, "1", "a"), await stage(broker, "1", "b", partition=OTHER)]
        [(_, first, _), (_, second, _)] = find_staged(OsFileSystem(), str(tmp_path))
        path = Path(next(file for file in (first, second) if file.endswith(broker.stage_commits.stages.file_name("1", OTHER))))
        good = path.read_bytes()
        await decide(broker, shares)
        path.write_bytes(good[:-1] + b"?")
        with pytest.raises(LogOfflineError, match="is decided, but 1 of its 2 partitions"):
            await broker.stage_commits.commit(APPLICATION, 0, shares)
        assert (await values_from(broker), await values_from(broker, OTHER)) == ([b"a"], [])
        with pytest.raises(LogOfflineError, match="Repeat the request"):
            await broker.stage_commits.commit(APPLICATION, 1, [])
        await broker.stage_commits.abort(APPLICATION, 0)
        path.write_bytes(good)
        answer = await broker.stage_commits.commit(APPLICATION, 0, shares)
        assert [(each.base_offset, each.end_offset) for each in answer.partitions] == [(0, 1), (0, 1)]
        assert not answer.by_this_call
        assert (await values_from(broker), await values_from(broker, OTHER)) == ([b"a"], [b"b"])


async def test_a_topic_that_goes_after_the_decision_takes_its_records_along(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 1)
        await broker.topics.create("other", 1)
        gone = TopicPartition("other", 0)
        shares = [await stage(broker, "1", "a"), await stage(broker, "1", "b", partition=gone)]
        await decide(broker, shares)
        await broker.topics.delete("other")
        await broker.topics.create("other", 1)
        answer = await broker.stage_commits.commit(APPLICATION, 0, shares)
        assert [(each.topic_partition, each.base_offset, each.end_offset) for each in answer.partitions] == [
            (gone, -1, -1),
            (PARTITION, 0, 1),
        ]
        assert await values_from(broker, gone) == []


async def test_a_file_that_is_missing_after_the_decision_keeps_the_application_waiting(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        share = await stage(broker, "1", "a")
        await decide(broker, [share])
        [(_, path, _)] = find_staged(OsFileSystem(), str(tmp_path))
        moved = Path(path).rename(tmp_path / "aside")
        with pytest.raises(LogOfflineError, match=r"cannot read the records of task '1' staged in"):
            await broker.stage_commits.commit(APPLICATION, 0, [share])
    async with one_partition(tmp_path) as broker:
        with pytest.raises(LogOfflineError, match="not in any log directory in service"):
            await broker.stage_commits.commit(APPLICATION, 0, [])
        await broker.writer.append(PARTITION, value("x"))
    Path(path).parent.mkdir(exist_ok=True)
    moved.rename(path)
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [b"x", b"a"]


async def test_what_a_decision_names_is_kept_when_nobody_knows_whether_it_was_stored(tmp_path: Path) -> None:
    """A record that could not be forced to the device may be there after a restart."""
    async with one_partition(tmp_path) as broker:
        share = await stage(broker, "1", "a", version=1)
        await broker.stage_commits.commit(APPLICATION, 0, [])
        actor_of(broker, TopicPartition("__stage_commits", 0)).take_offline("a test wants it so")
        with pytest.raises(LogOfflineError, match="a test wants it so"):
            await broker.stage_commits.commit(APPLICATION, 1, [share])
        await broker.stage_commits.abort(APPLICATION, 1)
        assert await broker.stage_commits.stages.expire() == 0
        assert broker.stage_commits.stages.check_complete(stage_name(APPLICATION, 1), "1", PARTITION).refusal is None
    async with one_partition(tmp_path) as broker:
        assert (await broker.stage_commits.commit(APPLICATION, 1, [share])).by_this_call
        assert await values_from(broker) == [b"a"]


async def decide(broker: Broker, shares: list[StagedShare]) -> None:
    """Store the decision and nothing more, as a crash behind it does."""
    commits = broker.stage_commits
    await commits.log.ensure()
    async with commits.log.turn(APPLICATION) as owner:
        await commits._decide(owner, 0, shares)
        owner.retry_at = float("inf")
