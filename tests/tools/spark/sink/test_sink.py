from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType
from triolog.server.embedded import BlockingBroker
from triolog.tools.spark.sink import writer
from triolog.tools.spark.sink.delivery import DeliveryError
from triolog.tools.spark.sink.sink import BatchWriter, StreamWriter, Written, batch_writer, stream_writer
from triolog.tools.spark.sink.write_options import OptionError, WriteOptions
from triolog.tools.spark.sink.write_rows import RowError
from triolog.tools.spark.sink.writer import WriteTask

VALUES = StructType().add("value", StringType())


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(config={"retention.ms": "-1"}) as running:
        running.create_topic("t")
        yield running


def given(broker: BlockingBroker, **options: str) -> dict[str, str]:
    return {"triolog.servers": f"127.0.0.1:{broker.native.port}", "topic": "t", **options}


def written(broker: BlockingBroker, application: str, version: int, *values: str) -> Written:
    """What a task answers that has staged these values."""
    task = WriteTask(application=application, version=version, spark_partition=0)
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], ["value"])
    return Written(writer.stage([rows], WriteOptions.from_options(given(broker)), task))


def values(broker: BlockingBroker) -> list[bytes | None]:
    return [record.value for record in broker.fetch("t")]


def stream(broker: BlockingBroker, **options: str) -> StreamWriter:
    """A writer as Spark makes one for each commit, pickled messages aside."""
    made = stream_writer(given(broker, **options), VALUES, False)
    assert isinstance(made, StreamWriter)
    return made


def batch(broker: BlockingBroker, **options: str) -> BatchWriter:
    """A writer as it comes back from a pickle."""
    made = cloudpickle.loads(cloudpickle.dumps(batch_writer(given(broker, **options), VALUES, False)))
    assert isinstance(made, BatchWriter)
    return made


def test_fresh_stream_writer_commits_what_messages_name_and_repeats_nothing(broker: BlockingBroker) -> None:
    message = cloudpickle.loads(cloudpickle.dumps(written(broker, "query", 5, "a")))
    stream(broker).commit([message], 5)
    stream(broker).commit([message], 5)
    stream(broker).commit([written(broker, "query", 5, "a again")], 5)
    stream(broker).commit([written(broker, "query", 6, "b")], 6)
    assert values(broker) == [b"a", b"b"]


def test_failed_batch_is_aborted_and_its_repetition_committed(broker: BlockingBroker) -> None:
    first = written(broker, "query", 0, "a")
    stream(broker).abort([None, first, None], 0)
    with pytest.raises(DeliveryError, match="committing version 0 of query to topic t"):
        stream(broker).commit([first], 0)
    stream(broker).commit([written(broker, "query", 0, "a")], 0)
    assert values(broker) == [b"a"]


def test_batch_of_which_every_task_failed_needs_no_server(broker: BlockingBroker) -> None:
    made = stream(broker)
    broker.stop()
    made.abort([None, None], 3)
    made.commit([], 3)


def test_txn_app_id_stands_for_the_query_even_without_messages(broker: BlockingBroker) -> None:
    stream(broker, txnAppId="app").commit([], 0)
    stream(broker, txnAppId="app").commit([written(broker, "app", 0, "a")], 0)
    assert values(broker) == []
    stream(broker, txnAppId="app").commit([written(broker, "app", 1, "b")], 1)
    assert values(broker) == [b"b"]


def test_batch_writer_commits_under_the_name_that_its_tasks_staged_under(broker: BlockingBroker) -> None:
    made = batch(broker)
    made.commit([written(broker, made._application, 0, "a")])
    made.abort([written(broker, made._application, 0, "b"), None])
    assert values(broker) == [b"a"]
    assert batch(broker)._application != made._application


def test_at_least_once_has_nothing_to_commit_or_abort(broker: BlockingBroker) -> None:
    made = [stream(broker, deliveryGuarantee="at-least-once"), batch(broker, deliveryGuarantee="at-least-once")]
    broker.stop()
    for each in made:
        arguments = (0,) if isinstance(each, StreamWriter) else ()
        each.commit([Written(None)], *arguments)
        each.abort([Written(None), None], *arguments)


@pytest.mark.parametrize(
    ("make", "options", "overwrite", "complaint"),
    [
        (batch_writer, {}, True, "mode overwrite is refused"),
        (batch_writer, {"txnAppId": "a"}, False, "txnAppId of a batch write needs txnVersion"),
        (batch_writer, {"size": "1"}, False, "unknown option size"),
        (stream_writer, {}, True, "output mode complete is refused"),
        (stream_writer, {"txnAppId": "a", "txnVersion": "1"}, False, "txnVersion is refused in a streaming query"),
    ],
)
def test_write_that_cannot_be_is_refused(
    broker: BlockingBroker, make: Callable[..., object], options: dict[str, str], overwrite: bool, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        make(given(broker, **options), VALUES, overwrite)


def test_wrong_schema_is_refused_before_any_task_runs(broker: BlockingBroker) -> None:
    for make in (batch_writer, stream_writer):
        with pytest.raises(RowError, match="column value is missing"):
            make(given(broker), StructType().add("key", StringType()), False)
