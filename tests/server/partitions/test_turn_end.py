"""Appends that a turn gathers are one group at its end: written there if that takes no thread, by the actor's task
otherwise."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.partitions.disk import MAX_BYTES
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.errors import AppendFailedError, LogOfflineError
from triolog.server.storage.log.append import AppendResult

from tests.server.partitions.appending import Answered, answered, offsets, prepared
from tests.support.brokers import actor_of, one_partition, until, value, values_from
from tests.support.counts import seeds
from tests.support.gate_fs import GateFileSystem


def put(actor: PartitionActor, answers: Answered, *, count: int = 1, size: int = 5) -> None:
    for _ in range(count):
        assert actor.try_append(prepared(actor, size=size), -1, answers.append)


async def test_the_appends_of_a_turn_are_answered_at_its_end_without_the_task(tmp_path: Path) -> None:
    """Those outside of a turn are done by the task; the first opens the file, in a thread."""
    answers: Answered = []
    async with one_partition(tmp_path, durability="os") as broker:
        actor = actor_of(broker)
        put(actor, answers)
        assert answers == []
        await answered(answers, 1)
        with broker.disk.gathering:
            put(actor, answers, count=50)
            assert len(answers) == 1
        assert offsets(answers) == list(range(51))
        assert (actor.statistics().groups, actor.statistics().appends) == (2, 51)
        assert len(await values_from(broker)) == 51


@pytest.mark.parametrize(
    ("durability", "topic", "size"),
    [
        ("fsync", {}, 5),
        ("os", {"flush.messages": "2"}, 5),
        ("os", {"segment.bytes": "2000"}, 900),
        ("os", {}, MAX_BYTES // 2),
    ],
    ids=["it is synced", "the second one is synced", "the third one rolls", "it is large"],
)
async def test_what_takes_long_the_task_does_in_order(
    tmp_path: Path, durability: str, topic: dict[str, str], size: int
) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, durability=durability, topic=topic) as broker:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)
        with broker.disk.gathering:
            put(actor, answers, count=3, size=size)
        assert len(answers) == 1
        with broker.disk.gathering:
            put(actor, answers)
        await answered(answers, 5)
        assert offsets(answers) == [0, 1, 2, 3, 4]
        assert len(await values_from(broker)) == 5


async def test_with_fsync_a_turn_gathers_one_group_for_the_task_and_puts_nothing_off(tmp_path: Path) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, durability="fsync") as broker:
        actor = actor_of(broker)
        with broker.disk.gathering:
            put(actor, answers, count=3)
            assert not broker.disk.gathering._writers
        await answered(answers, 3)
        assert (actor.statistics().groups, actor.statistics().appends) == (1, 3)


async def test_a_command_that_waits_for_its_turn_is_not_overtaken(tmp_path: Path) -> None:
    answers: Answered = []
    seen: list[int] = []
    async with one_partition(tmp_path, durability="os") as broker, trio.open_nursery() as nursery:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)

        def look(log: Any) -> Any:
            seen.append(log.log_end_offset)
            return
            yield

        with broker.disk.gathering:
            put(actor, answers, count=2)
            nursery.start_soon(actor.perform, look)
        await trio.testing.wait_all_tasks_blocked()
        with broker.disk.gathering:
            put(actor, answers)
        assert (offsets(answers), seen) == ([0, 1, 2, 3], [3])


async def test_a_write_at_the_end_of_a_turn_that_fails_is_taken_back_and_answered(tmp_path: Path, fs: GateFileSystem) -> None:
    answers: Answered = []
    fs.lets_write_at_once = True
    async with one_partition(tmp_path, durability="os", fs=fs) as broker:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)
        size = Path(actor.log.active.log.path).stat().st_size
        fs.fail("write", ".log", after_bytes=7)
        with broker.disk.gathering:
            put(actor, answers, count=2)
        with broker.disk.gathering:
            put(actor, answers)
        await answered(answers, 4)
        assert [type(answer) for answer in answers[1:3]] == [AppendFailedError] * 2
        assert answers[1].code is ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(answers) == [0, 1]
        assert Path(actor.log.active.log.path).stat().st_size == 2 * size


async def test_an_unhandled_exception_at_the_end_of_a_turn_takes_that_log_offline_only(tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    answers: Answered = []
    async with one_partition(tmp_path, durability="os") as broker:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)
        with broker.disk.gathering:
            actor.try_append(prepared(actor), -1, broken)
            put(actor, answers)
        await answered(answers, 2)
        assert actor.log.offline is not None
        assert isinstance(answers[1], LogOfflineError)
        await broker.topics.create("beside")
        assert (await broker.writer.append(TopicPartition("beside", 0), value("x"))).base_offset == 0


@pytest.mark.parametrize("seed", seeds(60))
async def test_any_interleaving_gives_offsets_in_the_order_of_sending(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    answers: list[tuple[int, AppendResult | RequestError]] = []
    changes: list[int] = []
    sent = 0
    durability, topic = random.choice([("os", {}), ("os", {"flush.messages": "7"}), ("fsync", {}), ("group:1", {})])
    async with one_partition(tmp_path, durability=durability, topic={"segment.bytes": "4000", **topic}) as broker:
        actor = actor_of(broker)

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                append = prepared(actor, size=random.choice([1, 100, 1000]))
                assert actor.try_append(append, random.choice([-1, 1]), partial(note, sent))
                sent += 1

        def note(number: int, answer: AppendResult | RequestError) -> None:
            answers.append((number, answer))

        def look(log: Any) -> Any:
            changes.append(log.log_end_offset)
            return
            yield

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                match random.randrange(5):
                    case 0:
                        send(random.randrange(4))
                    case 1:
                        nursery.start_soon(actor.perform, look)
                    case 2:
                        await trio.lowlevel.checkpoint()
                    case _:
                        with broker.disk.gathering:
                            send(random.randrange(6))
            await until(lambda: len(answers) == sent)
        assert {number: answer.base_offset for number, answer in answers if isinstance(answer, AppendResult)} == {
            number: number for number in range(sent)
        }
        assert changes == sorted(changes)
        assert len(await values_from(broker)) == sent
