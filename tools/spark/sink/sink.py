"""The writers of the data source `triolog`, as Spark's Python data source API wants them; what they do is `writer`'s.

Spark pickles a batch writer to its tasks and uses the same one to commit, so the name of the write that it makes up holds for
both. A stream writer is made anew for the tasks of every batch and once more for its commit, which therefore learns the query's
id from the tasks' messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ..carried import Carried
from ..one_line import one_line
from ..option_table.option import OptionError
from . import writer
from .worker import settle
from .write_options import WriteOptions
from .write_rows import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark's micro-batch execution gives its tasks."""


@attrs.frozen
class Written(WriterCommitMessage):
    """A task's message to the driver; None: the task has produced, and has nothing to commit."""

    staged: writer.Staged | None


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write.format("triolog").mode("append").save()`. OptionError, RowError."""
    if overwrite:
        raise OptionError('mode overwrite is refused: a log only accepts appends. Use .mode("append")')
    checked = _checked(options, schema)
    if checked.txn_app_id is not None and checked.txn_version is None:
        raise OptionError(
            "option txnAppId of a batch write needs txnVersion: with the same version a second write would write nothing"
        )
    return BatchWriter(checked, checked.txn_app_id or f"batch-{uuid.uuid4()}", checked.txn_version or 0)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream.format("triolog")`. OptionError, RowError."""
    if overwrite:
        raise OptionError('output mode complete is refused: a log only accepts appends. Use .outputMode("append")')
    checked = _checked(options, schema)
    if checked.txn_version is not None:
        raise OptionError("option txnVersion is refused in a streaming query: the number of the batch is the version")
    return StreamWriter(checked)


def _checked(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    checked = WriteOptions.from_options(options)
    check_schema(schema, checked.topic)
    return checked


class BatchWriter(Carried, DataSourceArrowWriter):
    """A writer for one write of a DataFrame."""

    def __init__(self, options: WriteOptions, application: str, version: int) -> None:
        self._options = options
        self._application = application
        self._version = version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: hand the rows over."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        return _write(iterator, self._options, _task(context, self._application, self._version))

    @one_line()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks are done: make the rows visible."""
        if self._options.is_exactly_once:
            writer.commit(self._options, self._application, self._version, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or the commit has failed; what was committed stays."""
        if self._options.is_exactly_once:
            _abort(self._options, self._application, self._version, messages)


class StreamWriter(Carried, DataSourceStreamArrowWriter):
    """A writer for one micro-batch of a streaming query: its tasks, or its commit."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: hand the rows over."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query is not None, f"Spark gives the tasks of a micro-batch the local property {QUERY_ID}"
        assert batch is not None, f"Spark gives the tasks of a micro-batch the local property {BATCH_ID}"
        return _write(iterator, self._options, _task(context, self._options.txn_app_id or query, int(batch)))

    @one_line()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, once all tasks are done; Spark repeats it when it does not know that it was done."""
        application = self._application(messages)
        if application is not None:
            writer.commit(self._options, application, batchId, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or the commit has failed; what was committed stays."""
        application = self._application(messages)
        if application is not None:
            _abort(self._options, application, batchId, messages)

    def _application(self, messages: Sequence[WriterCommitMessage | None]) -> str | None:
        """The application that a batch is staged under; None when no task has staged anything."""
        if not self._options.is_exactly_once:
            return None
        found = {staged.application for staged in _staged(messages)}
        assert len(found) <= 1, f"tasks of one batch belong to the queries {found}"
        return self._options.txn_app_id or next(iter(found), None)


def _task(context: TaskContext, application: str, version: int) -> writer.WriteTask:
    return writer.WriteTask(
        application=application,
        version=version,
        spark_partition=context.partitionId(),
        attempt=context.attemptNumber(),
    )


def _write(batches: Iterator[pa.RecordBatch], options: WriteOptions, task: writer.WriteTask) -> Written:
    settle()
    with one_line():
        if options.is_exactly_once:
            return Written(writer.stage(batches, options, task))
        writer.produce(batches, options, task)
        return Written(None)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[writer.Staged]:
    return [message.staged for message in messages if isinstance(message, Written) and message.staged is not None]


def _abort(options: WriteOptions, application: str, version: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Tasks that failed have no message and so no name: then all that the version has staged goes."""
    named = [staged.task for staged in _staged(messages)]
    writer.abort(options, application, version, named if None not in messages else None)
