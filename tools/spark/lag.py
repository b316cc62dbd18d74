"""The lag of streaming queries: offsets that the log has and a query has not processed yet.

Spark 4.3 gives a Python source no place for metrics of its own. The lag follows from two fields of a query's progress, though:
`latestOffset` (the ends of the logs at the last check) and `endOffset` (the position after the batch).

    listener = LagListener()
    spark.streams.addListener(listener)
    ...
    listener.lags  # {"late": QueryLag(batch=12, offsets={TopicPartition("flights", 0): 310, ...})}

A listener also logs one line for each batch. The position of a query is in `triolog groups`, too, with `kafka.group.id`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener

from ...protocol.types import TopicPartition
from .source.bounds import StreamOffsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

LOGGER: Final = logging.getLogger("triolog.spark.lag")
_SOURCE: Final = "PythonMicroBatchStream"


@attrs.frozen(kw_only=True)
class QueryLag:
    """The lag of a query after a batch, by partition. Offsets count: markers and compacted records are among them."""

    batch: int
    offsets: dict[TopicPartition, int]

    @property
    def total(self) -> int:
        """The lag of all partitions."""
        return sum(self.offsets.values())


def query_lag(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag that a query's progress shows, as in `query.lastProgress`. None if it reads from no source of triolog."""
    found: dict[TopicPartition, int] = {}
    is_triologs = False
    for source in progress.sources:
        if _SOURCE not in source.description or not source.latestOffset or not source.endOffset:
            continue
        reached, latest = (StreamOffsets.from_json(json.loads(text)) for text in (source.endOffset, source.latestOffset))
        is_triologs = True
        for partition, end in latest.offsets.items():
            found[partition] = max(0, end - reached.offsets.get(partition, 0))
    return QueryLag(batch=progress.batchId, offsets=dict(sorted(found.items()))) if is_triologs else None


class LagListener(StreamingQueryListener):
    """Keeps and logs the lag of each running query. Owner: Spark, which calls it in one thread."""

    def __init__(self) -> None:
        self.lags: dict[str, QueryLag] = {}
        """By the query's name, or its id if it has none."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Note the lag after a batch, or after a check without one."""
        lag = query_lag(event.progress)
        if lag is None:
            return
        name = event.progress.name or str(event.progress.id)
        self.lags[name] = lag
        topics: dict[str, int] = {}
        for partition, count in lag.offsets.items():
            topics[partition.topic] = topics.get(partition.topic, 0) + count
        by_topic = " ".join(f"{topic}={count}" for topic, count in topics.items())
        LOGGER.info("lag: query=%s batch=%d offsets=%d %s", name, lag.batch, lag.total, by_topic)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last lag of a query stays: it is the position from which the query continues."""
