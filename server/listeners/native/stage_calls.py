"""The native calls of exactly-once writers: values in, values out."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.native import messages
from ....protocol.types import TopicPartition
from ...broker import Broker, StagedBytes, StagedShare, StageWrite


async def stage(broker: Broker, message: messages.StageRequest) -> Callable[[], Awaitable[messages.StageResponse]]:
    """Give every partition's batches their place, in the order of the requests, and answer what writes them."""
    writes: list[StageWrite | RequestError] = []
    try:
        for each in message.partitions:
            writes.append(await _announced(broker, message, each))
    except BaseException:  # cancelled: who comes later would wait for them
        for write in writes:
            if not isinstance(write, RequestError):
                await broker.stages.give_up(write)
        raise
    places = [each.topic_partition for each in message.partitions]
    return partial(_write, broker, places, writes)


async def _announced(
    broker: Broker, message: messages.StageRequest, each: messages.StagePartition
) -> StageWrite | RequestError:
    try:
        return await broker.stages.announce(
            message.application, message.version, message.task, each.topic_partition, each.records
        )
    except RequestError as exc:
        return exc.as_answer()
    except ValueError as exc:
        return InvalidRequestError(f"{each.topic_partition}: {exc}")


async def _write(
    broker: Broker, places: list[TopicPartition], writes: list[StageWrite | RequestError]
) -> messages.StageResponse:
    """Write the stages one after the other. On cancellation, discard the remaining ones, because later writers wait for
    them."""
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
                await broker.stages.give_up(write)
    return messages.StageResponse(tuple(answers))


async def _staged(broker: Broker, write: StageWrite) -> StagedBytes | RequestError:
    try:
        return await broker.stages.write(write)
    except RequestError as exc:
        return exc.as_answer()


async def commit_stage(broker: Broker, message: messages.CommitStageRequest) -> messages.CommitStageResponse:
    shares = [
        StagedShare(task.task, each.topic_partition, StagedBytes(each.size_bytes, each.crc))
        for task in message.tasks
        for each in task.partitions
    ]
    committed = await broker.stage_commits.commit(message.application, message.version, shares)
    return messages.CommitStageResponse(
        committed.by_this_call,
        tuple(
            messages.StageCommittedPartition(*each.topic_partition, each.base_offset, each.end_offset)
            for each in committed.partitions
        ),
    )


async def abort_stage(broker: Broker, message: messages.AbortStageRequest) -> messages.AbortStageResponse:
    await broker.stage_commits.abort(message.application, message.version, message.tasks)
    return messages.AbortStageResponse()


async def last_commit(broker: Broker, message: messages.LastCommitRequest) -> messages.LastCommitResponse:
    version = broker.stage_commits.last_version(message.application)
    return messages.LastCommitResponse(messages.NO_VERSION if version is None else version)
