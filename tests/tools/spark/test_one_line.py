"""Errors that Spark shows without the stack of its worker."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from triolog.tools.spark.one_line import HIDE_TRACEBACK, one_line
from triolog.tools.spark.option_table.option import OptionError
from triolog.tools.spark.source.broker import BrokerUnavailableError
from triolog.tools.spark.source.schema import spark_schema
from triolog.tools.spark.source.source import TriologDataSource
from triolog.tools.spark.source.stream_reader import RefusedStreamReader

WRONG = {"triolog.servers": "a:1", "subscribe": "events", "endingOffsets": "latest"}


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks like a worker of Spark."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setenv(HIDE_TRACEBACK, "")


@pytest.mark.usefixtures("in_worker")
@pytest.mark.parametrize("error", [OptionError("option a"), BrokerUnavailableError("a:1 did not answer")])
def test_a_stack_is_hidden_for_errors_that_explain_themselves(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), one_line():
        raise error
    assert os.environ[HIDE_TRACEBACK] == "1"


@pytest.mark.usefixtures("in_worker")
def test_a_stack_is_shown_for_any_other_error() -> None:
    with pytest.raises(ZeroDivisionError), one_line():
        _ = 1 / 0
    assert not os.environ[HIDE_TRACEBACK]


def test_a_driver_keeps_its_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    with pytest.raises(OptionError), one_line():
        raise OptionError("option a")
    assert not os.environ[HIDE_TRACEBACK]


def test_a_stream_with_wrong_options_raises_at_the_first_call_of_its_reader() -> None:
    """Spark 4.3 answers an error of `streamReader` with an UnboundLocalError of its own."""
    reader = TriologDataSource(WRONG).streamReader(spark_schema(["offset"]))
    assert isinstance(reader, RefusedStreamReader)
    for call in (
        reader.initialOffset,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(OptionError, match="option endingOffsets is refused in a streaming query"):
            call()
