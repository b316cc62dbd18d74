"""A running server as a source: record batches by the native protocol, as they are stored, with the next answer on its way."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn, TypeVar

from ....protocol.errors import CorruptRecordError, ErrorCode, RequestError
from ....protocol.native.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    TopicMetadata,
)
from ....protocol.types import Isolation, TopicPartition
from ...client.blocking.client import BlockingClient, Started
from ...client.config import Address, ClientConfig
from ...client.exchange import expect
from ...client.login import LoginConfig
from ...client.procedures import groups, topics
from ...client.procedures.groups import CommittedOffset
from ...client.procedures.topics import AtTime, Procedure
from ...client.tls import TlsConfig
from ..errors import SourceFailedError, TopicStoppedError
from .source import MAX_WAIT_MS, OffsetRange, Piece, Places, SourceTopic, is_lost, timestamps_at

LOGGER: Final = logging.getLogger(__name__)
CLIENT_ID: Final = "triolog-forward"
CONNECT_TIMEOUT_MS: Final = 10_000
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)

T = TypeVar("T")


class ServerSource:
    """A `Source`. Owner: the thread of one link."""

    def __init__(self, address: Address, tls: TlsConfig | None = None, login: LoginConfig | None = None) -> None:
        self._address = address
        config = ClientConfig(client_id=CLIENT_ID, connect_timeout_ms=CONNECT_TIMEOUT_MS, tls=tls, login=login)
        self._client = BlockingClient(address, config)
        self._places = Places({}, {})
        self._pieces: deque[Piece] = deque()
        self._ahead: Started | None = None
        self._finished_s: float | None = None
        self._wait_ms = 0

    def node(self) -> str:
        """The cluster id, which stays with the data."""
        try:
            return self._client.hello().cluster_id
        except RequestError as exc:
            self._fail(exc)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, SourceTopic]:
        """Those that cannot be described now are left out."""
        wanted = None if names is None else tuple(names)
        if wanted == ():
            return {}
        answer = expect(MetadataResponse, self._run(topics.answer_to(MetadataRequest(wanted))))
        return {topic.name: _source_topic(topic) for topic in answer.topics if topic.error is None and topic.topic_id}

    def locate(self, partitions: Iterable[TopicPartition], start: AtTime) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        return self._run(topics.locate(wanted, start, Isolation.READ_COMMITTED)) if wanted else {}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        wanted = list(partitions)
        return self._run(groups.fetch_offsets(group, wanted, require_stable=True)) if wanted else {}

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._run(groups.commit_offsets(group, offsets))

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for partition, offset in offsets.items():
            request = FetchRequest((FetchPartition(*partition, offset, 1),), 0, max_bytes=1)  # at least one batch comes
            [answer] = expect(FetchResponse, self._run(topics.answer_to(request))).partitions
            if answer.error is not None:  # gone, damaged, out of range: whoever reads on will see
                continue
            with contextlib.suppress(CorruptRecordError):
                found.update((partition, timestamp) for timestamp in timestamps_at(answer, offset))
        return found

    def read(self, offsets: Mapping[TopicPartition, int], ranks: Mapping[str, int]) -> None:
        self._forget_ahead()
        self._pieces.clear()
        self._places = Places(offsets, ranks)
        self._finished_s = None

    def next(self, timeout_s: float) -> Piece | None:
        """Waits a moment longer than asked for where a long poll is under way."""
        deadline = time.monotonic() + timeout_s
        self._wait_ms = int(timeout_s * 1000)
        try:
            while not self._pieces:
                if not self._receive(deadline) or (not self._pieces and time.monotonic() >= deadline):
                    return None
        except RequestError as exc:
            self._fail(exc)
        return self._pieces.popleft()

    @property
    def is_behind(self) -> bool:
        return bool(self._pieces) or self._places.is_behind

    @property
    def finished_s(self) -> float | None:
        return None if self._pieces else self._finished_s

    def close(self) -> None:
        self._client.close()

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _receive(self, deadline: float) -> bool:
        """Take in one answer and ask for the next; False when none came in time."""
        ahead = self._ahead or self._ask(deadline)
        if ahead is None:
            time.sleep(max(0.0, min(deadline - time.monotonic(), MAX_WAIT_MS / 1000)))
            self._finished_s = time.monotonic()
            return False
        if not ahead.is_due(deadline):
            return False
        self._ahead = None
        answer = expect(FetchResponse, ahead.take())
        pieces, errors = self._places.accept(answer.partitions)
        self._finished_s = time.monotonic() if self._places.is_finished(pieces, errors) else None
        self._pieces += pieces
        for error in errors:
            self._settle(error)
        if pieces:
            self._ask(deadline)
        return True

    def _ask(self, deadline: float) -> Started | None:
        left_ms = int(max(0.0, deadline - time.monotonic()) * 1000)
        request = self._places.plan_fetch(left_ms if not self._pieces else self._wait_ms)
        if request is None:
            return None
        self._ahead = self._client.start(request)
        return self._ahead

    def _settle(self, answer: FetchPartitionResponse) -> None:
        """Go on behind what is lost. Raises TopicStoppedError where nothing is, and the error itself where it may pass."""
        assert answer.error is not None
        partition = TopicPartition(answer.topic, answer.partition)
        offset = self._places.offset(partition)
        if answer.error.code in _GONE:
            raise TopicStoppedError(answer.topic, "the source no longer has this topic")
        if answer.error.code is ErrorCode.CORRUPT_MESSAGE:
            if not self._places.skip_damage(partition):
                raise TopicStoppedError(
                    answer.topic,
                    f"partition {answer.partition} is damaged at offset {offset}: {answer.error.message}. Stop the server "
                    "and run `triolog repair`",
                )
            LOGGER.warning("%s: skipping damaged offset %d: %s", partition, offset, answer.error.message)
            return
        if not is_lost(answer.error):
            raise answer.error
        there = self.topics([answer.topic]).get(answer.topic)
        place = None if there is None else there.partitions.get(answer.partition)
        if place is None or place.end_offset < offset:
            raise TopicStoppedError(
                answer.topic, f"partition {answer.partition} has lost its end: the link should continue at {offset}"
            )
        if place.start_offset > offset:
            gap = self._places.lost_before(partition, place.start_offset)
            LOGGER.warning("%s: offsets %s are lost and were not forwarded", partition, gap)

    def _forget_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.forget()
            self._ahead = None

    def _run(self, procedure: Procedure[T]) -> T:
        try:
            return self._client.run(procedure)
        except RequestError as exc:
            self._fail(exc)

    def _fail(self, error: RequestError) -> NoReturn:
        raise SourceFailedError(f"the source {self._address[0]}:{self._address[1]}: {error.message}") from error


def _source_topic(topic: TopicMetadata) -> SourceTopic:
    assert topic.topic_id is not None
    return SourceTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        config=topic.config,
        partitions={
            each.partition: OffsetRange(each.log_start_offset, each.high_watermark, each.size_bytes)
            for each in topic.partitions
            if each.error is None
        },
    )
