"""The work of a write's tasks and driver, without a Spark session: rows to record batches to the server, then one commit.

A task stages its batches under a name that no other attempt has, so what a lost attempt, a speculative copy or an earlier run
left behind never mixes with it: only the tasks that the commit names count. The commit is keyed by application and version, and
a version that is committed already is not committed again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from ....protocol.limits import MAX_TASKS_PER_COMMIT, MIB
from ....protocol.native.messages import (
    AbortStageRequest,
    AbortStageResponse,
    CommitStageRequest,
    CommitStageResponse,
    LastCommitRequest,
    LastCommitResponse,
    StagedPartition,
    StagedTask,
)
from ....protocol.records.columnar.encode import Encoding, encode_batches
from .delivery import DeliveryError, GivenUpError, ProduceOutbox, ServerLink, TaskOutbox
from .staging import StageOutbox
from .write_options import WriteOptions
from .write_rows import Routing

if TYPE_CHECKING:
    import pyarrow as pa

LOGGER: Final = logging.getLogger(__name__)

BUFFER_BYTES: Final = 16 * MIB
"""Rows of a task that are collected before they are encoded: Spark hands over 10,000 rows at a time, which spread over many
partitions would become small record batches."""
IN_DOUBT: Final = (
    "it may be committed anyway. A stream finds out when it is started on its checkpoint. A batch write "
    "finds out when it is run again with its txnAppId and txnVersion; without those it writes its rows "
    "again"
)
MAX_PARTS_PER_COMMIT: Final = 20_000
"""Each is nine objects of a request, each task five more, and a frame has at most 262,144 (`native.frames.MAX_OBJECTS`)."""
ABORT_TIMEOUT_MS: Final = 5_000
"""An abort only tidies up, and the server does so by itself in time."""


@attrs.frozen(kw_only=True)
class WriteTask:
    """The identity of a task: its write, its part of the write, and its attempt."""

    application: str
    version: int
    spark_partition: int
    attempt: int = 0

    def stage_name(self) -> str:
        """The task's name for the server, new each time."""
        return f"{self.spark_partition}.{self.attempt}.{uuid.uuid4().hex[:12]}"


@attrs.frozen(kw_only=True)
class Staged:
    """A task's message to the driver: its stage name and staged bytes. No partitions: no rows, or they are committed."""

    application: str
    task: str
    partitions: tuple[StagedPartition, ...]
    records: int


def stage(batches: Iterable[pa.RecordBatch], options: WriteOptions, task: WriteTask) -> Staged:
    """Stage the rows of a task. RowError, DeliveryError; what was staged until then is never committed."""
    name = task.stage_name()
    with _link(options) as link:
        if _is_committed(link, task):
            for _ in batches:
                pass  # Spark hands them over anyhow
            return Staged(application=task.application, task=name, partitions=(), records=0)
        outbox = StageOutbox(link, task.application, task.version, name)
        records = _send(batches, options, task, link, outbox)
    partitions = tuple(
        StagedPartition(*partition, staged.size_bytes, staged.crc) for partition, staged in outbox.staged.items()
    )
    return Staged(application=task.application, task=name, partitions=partitions, records=records)


def produce(batches: Iterable[pa.RecordBatch], options: WriteOptions, task: WriteTask) -> int:
    """Append the rows of a task at once, and answer how many there were. RowError, DeliveryError."""
    with _link(options) as link:
        return _send(batches, options, task, link, ProduceOutbox(link, options.acks))


def commit(options: WriteOptions, application: str, version: int, staged: Sequence[Staged]) -> bool:
    """Make what these tasks have staged visible; False when the version was committed before. DeliveryError; where it says
    that the outcome is in doubt, asking again is right."""
    tasks = tuple(StagedTask(entry.task, entry.partitions) for entry in staged if entry.partitions)
    _check_count(tasks)
    topics = sorted({partition.topic for task in tasks for partition in task.partitions})
    what = f"committing version {version} of {application}" + (f" to topic {', '.join(topics)}" if topics else "")
    with _link(options) as link:
        try:
            response = link.call(CommitStageResponse, CommitStageRequest(application, version, tasks), what)
        except GivenUpError as exc:
            raise DeliveryError(f"{exc}; {IN_DOUBT}") from exc
    if not response.committed:
        LOGGER.info("version %d of %s was already committed: nothing was written again", version, application)
    return response.committed


def _check_count(tasks: Sequence[StagedTask]) -> None:
    """DeliveryError when a commit of these tasks does not fit into one request."""
    parts = sum(len(task.partitions) for task in tasks)
    if len(tasks) > MAX_TASKS_PER_COMMIT or parts > MAX_PARTS_PER_COMMIT:
        raise DeliveryError(
            f"{len(tasks)} tasks have staged {parts} parts, one for each of their topic partitions. A commit has "
            f"at most {MAX_TASKS_PER_COMMIT} tasks and {MAX_PARTS_PER_COMMIT} parts: coalesce() the rows before "
            "the write"
        )


def abort(options: WriteOptions, application: str, version: int, tasks: Sequence[str] | None) -> None:
    """Throw away what these tasks have staged, None: all of the version's. Never raises: the server forgets it in time."""
    request = AbortStageRequest(application, version, None if tasks is None else tuple(tasks))
    try:
        with ServerLink(options.servers, options.access, delivery_timeout_ms=ABORT_TIMEOUT_MS) as link:
            link.call(AbortStageResponse, request, f"aborting version {version} of {application}")
    except DeliveryError as exc:
        LOGGER.warning("%s: the server deletes staged records that stay uncommitted", exc)


def _link(options: WriteOptions) -> ServerLink:
    return ServerLink(
        options.servers,
        options.access,
        delivery_timeout_ms=options.delivery_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
    )


def _is_committed(link: ServerLink, task: WriteTask) -> bool:
    what = f"asking for the last version of {task.application}"
    return link.call(LastCommitResponse, LastCommitRequest(task.application), what).version >= task.version


def _send(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, task: WriteTask, link: ServerLink, outbox: TaskOutbox
) -> int:
    routing = Routing(
        topic=options.topic,
        application=task.application,
        version=task.version,
        spark_partition=task.spark_partition,
        partition_count=link.partition_count,
    )
    records = 0
    for collected in _collect(batches):
        encoding = Encoding(
            compression=options.compression,
            batch_records=options.batch_records,
            batch_bytes=options.batch_bytes,
            default_timestamp=time.time_ns() // 1_000_000,
        )
        for group in routing.group(collected):
            for encoded in encode_batches(group.rows, encoding):
                outbox.put(group.partition, encoded.data)
                records += encoded.records
    outbox.flush()
    return records


def _collect(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    collected: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        collected.append(batch)
        size += batch.nbytes
        if size >= BUFFER_BYTES:
            yield collected
            collected, size = [], 0
    if collected:
        yield collected
