"""The native calls of exactly-once writers: values in, body out."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ...protocol.errors import InvalidRequestError, RequestError
from ...protocol.native import messages
from ...protocol.types import TopicPartition
from ..broker import Broker, StagedBytes, StagedShare, StageWrite


async def stage(broker: Broker, message: messages.StageRequest) -> Callable[[], Awaitable[Any]]:
    """Give every partition's batches their place, in the order of the requests, and answer what writes them."""
    writes: list[StageWrite | RequestError] = []
    try:
        for each in message.partitions:
            writes.append(await _announced(broker, message, each))
    except BaseException:  # cancelled: who comes later would wait for them
        for write in writes:
            if not isinstance(write, RequestError):
                await broker.give_up_stage(write)
        raise
    places = [(each.topic, each.partition) for each in message.partitions]
    return partial(_write, broker, places, writes)


async def _announced(
    broker: Broker, message: messages.StageRequest, each: messages.StagePartition
) -> StageWrite | RequestError:
    topic_partition = TopicPartition(each.topic, each.partition)
    try:
        return await broker.announce_stage(message.application, message.version, message.task, topic_partition, each.records)
    except RequestError as exc:
        return exc.as_answer()
    except ValueError as exc:
        return InvalidRequestError(f"{topic_partition}: {exc}")


async def _write(broker: Broker, places: list[tuple[str, int]], writes: list[StageWrite | RequestError]) -> Any:
    """One after the other. Cancelled: those that are left are given up, because who comes later waits for them."""
    answers = []
    left = deque(writes)
    try:
        for place in places:
            write = left.popleft()
            staged = write if isinstance(write, RequestError) else await _staged(broker, write)
            if isinstance(staged, RequestError):
                answers.append(messages.StagePartitionResponse(*place, staged))
            else:
                answers.append(messages.StagePartitionResponse(*place, None, staged.size_bytes, staged.crc))
    finally:
        for write in left:
            if not isinstance(write, RequestError):
                await broker.give_up_stage(write)
    return messages.StageResponse(tuple(answers)).to_body()


async def _staged(broker: Broker, write: StageWrite) -> StagedBytes | RequestError:
    try:
        return await broker.stage(write)
    except RequestError as exc:
        return exc.as_answer()


async def commit_stage(broker: Broker, message: messages.CommitStageRequest) -> Any:
    shares = [
        StagedShare(task.task, TopicPartition(each.topic, each.partition), StagedBytes(each.size_bytes, each.crc))
        for task in message.tasks
        for each in task.partitions
    ]
    committed = await broker.commit_stage(message.application, message.version, shares)
    return messages.CommitStageResponse(
        committed.by_this_call,
        tuple(
            messages.StageCommittedPartition(*each.topic_partition, each.base_offset, each.end_offset)
            for each in committed.partitions
        ),
    ).to_body()


async def abort_stage(broker: Broker, message: messages.AbortStageRequest) -> Any:
    await broker.abort_stage(message.application, message.version, message.tasks)
    return messages.AbortStageResponse().to_body()


async def last_commit(broker: Broker, message: messages.LastCommitRequest) -> Any:
    version = broker.last_commit(message.application)
    return messages.LastCommitResponse(messages.NO_VERSION if version is None else version).to_body()
