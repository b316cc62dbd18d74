"""The calls of a read to the server: what there is, which offset a time has, where to cut, record batches as they are stored.

Every call is repeated over a lost connection, a server that starts again and errors that pass, until the options' time is up;
then it is BrokerUnavailableError with the address. A process has one connection for each address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import attrs

from ....protocol.errors import ErrorCode, RequestError, TriologError
from ....protocol.limits import MAX_PARTITIONS_PER_REQUEST
from ....protocol.native.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    Gaps,
    LeaseSegmentsResponse,
    MetadataRequest,
    SplitPoint,
    SplitPointsPartition,
    SplitPointsRequest,
    SplitPointsResponse,
    TopicMetadata,
)
from ....protocol.types import LATEST_TIMESTAMP, Isolation, TopicPartition
from ...client.backoff import Retries, passes
from ...client.blocking.admin import BlockingAdmin
from ...client.blocking.client import BlockingClient, Started
from ...client.config import ClientConfig
from ...client.exchange import expect
from ...client.procedures.groups import commit_offsets
from ...client.procedures.topics import checked, offsets_at
from ..sink.worker import PerProcess
from .bounds import PartitionRange
from .options import Assigned, Matching, ReadOptions, Selection

LONG_POLL_MS: Final = 500
"""How long a fetch waits for offsets that were promised and are not there yet; half of the options' patience where that is
less."""
MAX_CONNECTIONS: Final = 8
"""Servers that one process keeps a connection to."""

T = TypeVar("T")


class BrokerUnavailableError(TriologError):
    """The server did not answer within the time of the options."""


class TopicMissingError(TriologError):
    """A topic or partition that is to be read is not there."""


class Question(NamedTuple):
    """The first record of a partition at or after a time in ms, or one of the special timestamps."""

    partition: TopicPartition
    timestamp: int


class Cut(NamedTuple):
    """Offsets of a partition to be cut into pieces of about `target_bytes`; `end` is exclusive."""

    partition: TopicPartition
    start: int
    end: int
    target_bytes: int


class Broker:
    """Calls to one server with the patience of one read's options. Owner: one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        request_timeout_ms = min(options.request_timeout_ms, options.poll_timeout_ms)
        self._long_poll_ms = min(LONG_POLL_MS, options.poll_timeout_ms // 2)
        self._config = ClientConfig(
            client_id=options.client_id,
            connect_timeout_ms=min(10_000, options.poll_timeout_ms),
            request_timeout_ms=request_timeout_ms,
            tls=options.access.tls,
            login=options.access.login,
        )

    def ranges(
        self, selection: Selection | None = None, *, missing_is_left_out: bool = False
    ) -> dict[TopicPartition, PartitionRange]:
        """Every partition that is selected and what of it can be read, in order; sizes are of whole logs.

        TopicMissingError for a topic that is named and not there, after `fetchOffset.numRetries`: it may be being made. Or it
        is left out, for those who know by themselves what was there.
        """
        selection = self._options.selection if selection is None else selection
        for attempt in range(self._options.metadata_retries + 1):
            try:
                return self._ranges(selection)
            except TopicMissingError:
                if attempt == self._options.metadata_retries:
                    if missing_is_left_out:
                        return self._ranges(selection, missing_is_left_out=True)
                    raise
            time.sleep(self._options.metadata_retry_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    def offsets_for_times(self, questions: Sequence[Question]) -> list[int]:
        """The offset for each question, in order, -1 where there is none; all in one request (10,000 fit into one)."""
        procedure = partial(offsets_at, questions, self._options.isolation)
        return self._retried(lambda client: [entry.offset for entry in checked(client.run(procedure()))])

    def split_points(self, cuts: Sequence[Cut]) -> list[tuple[SplitPoint, ...]] | None:
        """Return the offsets where each range can be cut. None when the server is older than the call, does not know a range,
        or there are more ranges than a request can hold."""
        if not cuts:
            return []
        if len(cuts) > MAX_PARTITIONS_PER_REQUEST:
            return None
        request = SplitPointsRequest(
            tuple(SplitPointsPartition(*cut.partition, cut.start, cut.end, cut.target_bytes) for cut in cuts)
        )

        def ask(client: BlockingClient) -> list[tuple[SplitPoint, ...]] | None:
            if SplitPointsRequest.api not in client.hello().apis:
                return None
            response = expect(SplitPointsResponse, client.call(request))
            return (
                None if any(entry.error for entry in response.partitions) else [entry.points for entry in response.partitions]
            )

        return self._retried(ask)

    def lease_segments(
        self, partitions: Sequence[TopicPartition], lease_ms: int, lease_id: str | None = None
    ) -> LeaseSegmentsResponse:
        """The segment files of these partitions, kept for `lease_ms`; with `lease_id` that lease goes on, 0 ms ends it.

        A request of at most 10,000 partitions. RequestError, also that of a partition that cannot be leased.
        """
        return self._retried(lambda client: BlockingAdmin(client).lease_segments(partitions, lease_ms, lease_id))

    def fetch(
        self, partition: TopicPartition, offset: int, ahead: Started | None = None, *, skip_gaps: bool = False
    ) -> FetchPartitionResponse:
        """Fetch from a partition, starting at an offset; `ahead` is the same fetch, sent before.

        Raises what the server says of the partition: OffsetOutOfRangeError, CorruptRecordError...
        """
        request = self._fetch_request(partition, offset, skip_gaps)
        return self._patiently(lambda client, retries: client.fetch_partition(request, retries, ahead))

    def fetch_ahead(self, partition: TopicPartition, offset: int, *, skip_gaps: bool = False) -> Started | None:
        """Ask now for what `fetch` will take later; None when it cannot be asked now, and then `fetch` asks itself."""
        return self._client().fetch_ahead(self._fetch_request(partition, offset, skip_gaps))

    def commit_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Publish how far a query has got, for tools that watch groups. RequestError; the next commit says more anyway."""
        self._client().run(commit_offsets(group, dict(offsets)))

    def close(self) -> None:
        """Close this process's connection to the server; another call makes it anew."""
        _CLIENTS.drop(self._key())

    def _ranges(self, selection: Selection, *, missing_is_left_out: bool = False) -> dict[TopicPartition, PartitionRange]:
        request = MetadataRequest(_asked_topics(selection))
        topics = self._retried(lambda client: client.metadata(request).topics)
        found = {}
        for topic in topics:
            if missing_is_left_out and topic.error is not None and topic.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if not isinstance(selection, Matching) or selection.matches(topic.name):
                found.update(self._ranges_of(topic))
        if isinstance(selection, Assigned):
            missing = [partition for partition in selection.partitions if partition not in found]
            if missing and not missing_is_left_out:
                raise TopicMissingError(f"{self._options.server} has no partition {missing[0]}. The option assign names it")
            found = {partition: found[partition] for partition in selection.partitions if partition in found}
        found = dict(sorted(found.items()))
        if self._options.isolation is Isolation.READ_COMMITTED:
            ends = self.offsets_for_times([Question(partition, LATEST_TIMESTAMP) for partition in found])
            found = {
                partition: attrs.evolve(range_, high=max(range_.low, end))
                for (partition, range_), end in zip(found.items(), ends, strict=True)
            }
        return found

    def _ranges_of(self, topic: TopicMetadata) -> dict[TopicPartition, PartitionRange]:
        if topic.error is not None:
            if topic.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicMissingError(
                    f"{self._options.server} has no topic {topic.name}. Create it, or correct the option that names it"
                )
            raise topic.error
        return {
            TopicPartition(topic.name, entry.partition): PartitionRange(
                entry.log_start_offset, entry.high_watermark, entry.size_bytes, topic.topic_id
            )
            for entry in checked(topic.partitions)
        }

    def _fetch_request(self, partition: TopicPartition, offset: int, skip_gaps: bool) -> FetchRequest:
        max_bytes = self._options.fetch_max_bytes
        return FetchRequest(
            (FetchPartition(*partition, offset, max_bytes),),
            self._long_poll_ms,
            1,
            max_bytes,
            self._options.isolation,
            gaps=Gaps.SKIP if skip_gaps else Gaps.REFUSE,
        )

    def _retried(self, ask: Callable[[BlockingClient], T]) -> T:
        return self._patiently(lambda client, retries: client.retried(lambda: ask(client), retries))

    def _patiently(self, ask: Callable[[BlockingClient, Retries], T]) -> T:
        patience_s = self._options.poll_timeout_ms / 1000
        try:
            return ask(self._client(), Retries(patience_s, passes, time.monotonic() + patience_s))
        except RequestError as exc:
            if passes(exc):
                raise self._unavailable(exc) from exc
            raise

    def _unavailable(self, error: RequestError) -> BrokerUnavailableError:
        within = f"within {self._options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)"
        if error.code in _UNANSWERED:
            return BrokerUnavailableError(
                f"{self._options.server} did not respond {within}: {error}. Is the server running and is this its address?"
            )
        return BrokerUnavailableError(f"{self._options.server} returned only errors {within}, the last: {error}")

    def _client(self) -> BlockingClient:
        return _CLIENTS.get(self._key(), lambda: BlockingClient(self._options.servers.source(), self._config))

    def _key(self) -> tuple[object, ...]:
        return (self._options.servers, self._config)


_UNANSWERED: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
_CLIENTS: Final = PerProcess[tuple[object, ...], BlockingClient](MAX_CONNECTIONS)


def close_connections() -> None:
    """Close all of this process's connections."""
    _CLIENTS.close()


def _asked_topics(selection: Selection) -> tuple[str, ...] | None:
    if isinstance(selection, Matching):
        return None
    if isinstance(selection, Assigned):
        return tuple(dict.fromkeys(partition.topic for partition in selection.partitions))
    return selection.topics
