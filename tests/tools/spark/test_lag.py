"""The lag of a query from its progress, as Spark passes it to listeners."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from triolog.protocol.types import TopicPartition
from triolog.tools.spark.lag import LagListener, QueryLag, query_lag


def progress(description: str = "o.a.s.PythonMicroBatchStreamWithTriggerAvailableNow@61556ed9", **fields: Any) -> Any:
    """The fields of Spark's progress that the lag needs."""
    end = {"events": {"0": 40, "1": 100}, "events#id=Kp": {}, "events#start=0:1": {}}
    latest = {"events": {"0": 100, "1": 90, "2": 7}}
    source = SimpleNamespace(description=description, endOffset=json.dumps(end), latestOffset=json.dumps(latest))
    return SimpleNamespace(**{"batchId": 3, "id": "0b8b", "name": None, "sources": [source]} | fields)


def test_the_lag_is_what_the_log_has_beyond_the_position_and_never_negative() -> None:
    lag = query_lag(progress())
    offsets = {TopicPartition("events", 0): 60, TopicPartition("events", 1): 0, TopicPartition("events", 2): 7}
    assert lag == QueryLag(batch=3, offsets=offsets)
    assert lag is not None
    assert lag.total == 67


def test_other_sources_have_no_lag_here() -> None:
    assert query_lag(progress("KafkaV2[Subscribe[events]]")) is None
    assert query_lag(progress(sources=[])) is None


def test_a_listener_keeps_and_logs_the_lag_of_each_query(caplog: pytest.LogCaptureFixture) -> None:
    listener = LagListener()
    listener.onQueryStarted(SimpleNamespace())  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "triolog.spark.lag"):
        listener.onQueryProgress(SimpleNamespace(progress=progress()))  # type: ignore[arg-type]
        listener.onQueryProgress(SimpleNamespace(progress=progress(name="late", batchId=4)))  # type: ignore[arg-type]
        listener.onQueryProgress(SimpleNamespace(progress=progress(sources=[])))  # type: ignore[arg-type]
    listener.onQueryTerminated(SimpleNamespace())  # type: ignore[arg-type]
    assert {name: (lag.batch, lag.total) for name, lag in listener.lags.items()} == {"0b8b": (3, 67), "late": (4, 67)}
    assert "lag: query=late batch=4 offsets=67 events=67" in caplog.text
    assert len(caplog.records) == 2
