"""Record batches on their way to a server that may start again meanwhile: several requests in flight, each repeated.

An outbox collects batches into requests. What it asks, and what an answer means, its subclasses say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

import attrs

from ....protocol.errors import RequestError
from ....protocol.native.messages import RequestMessage, ResponseMessage
from ....protocol.types import TopicPartition
from ..backoff import Retries
from ..exchange import is_answered
from .client import BlockingClient, Started

WINDOW: Final = 4
"""Requests in flight, so that the server writes one while the next is encoded; it knows the last five batches of a producer."""

Blobs = dict[TopicPartition, bytes]


class Refused(NamedTuple):
    """Batches that were not taken, for a reason that may pass."""

    blobs: Blobs
    error: RequestError


@attrs.define(eq=False, repr=False)
class _Sent:
    blobs: Blobs
    started: Started | None = None


class Outbox(ABC):
    """Sends record batches in requests, WINDOW of them in flight; those of a partition in the order in which they were put."""

    def __init__(self, client: BlockingClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._open: dict[TopicPartition, list[bytes]] = {}
        self._open_bytes = 0
        self._sent: deque[_Sent] = deque()
        self._was_lost = False
        """A request was left without an answer, so that nobody knows what became of it."""
        self._again: set[TopicPartition] = set()
        """Partitions of batches that have to be sent again, while what was sent behind them is settled."""

    def put(self, partition: TopicPartition, batch: bytes) -> None:
        """Take one record batch; sends and waits when enough has come together."""
        if self._open_bytes and self._open_bytes + len(batch) > self.request_bytes:
            self._send_open()
        self._open.setdefault(partition, []).append(batch)
        self._open_bytes += len(batch)

    def flush(self) -> None:
        """Send what is left and wait until all of it is answered."""
        if self._open:
            self._send_open()
        while self._sent:
            self._settle_oldest()

    @property
    @abstractmethod
    def request_bytes(self) -> int:
        """Size of a request; it is larger for a single larger batch."""

    @abstractmethod
    def request(self, blobs: Blobs) -> RequestMessage:
        """The request that carries these batches."""

    @abstractmethod
    def settle(self, blobs: Blobs, response: ResponseMessage) -> Refused | None:
        """Take an answer in; what of the batches has to be sent again. Raises what ends the whole."""

    @abstractmethod
    def fail(self, lost: Sequence[Blobs], error: RequestError) -> NoReturn:
        """Raise for batches that are not tried again."""

    def missing(self, sent: Sequence[Blobs]) -> list[Blobs]:
        """Return the batches of these unanswered requests to send again; all of them when their outcome is unknown. Raises
        RequestError when the server cannot be queried now."""
        return list(sent)

    def _send_open(self) -> None:
        blobs = {partition: b"".join(batches) for partition, batches in self._open.items()}
        self._open, self._open_bytes = {}, 0
        while len(self._sent) >= WINDOW:
            self._settle_oldest()
        sent = _Sent(blobs)
        self._sent.append(sent)
        request = self.request(blobs)
        try:
            sent.started = self._client.start(request)
        except RequestError as exc:
            self._recover(exc)
            return
        if not is_answered(request):
            self._sent.pop()

    def _settle_oldest(self) -> None:
        sent = self._sent[0]
        assert sent.started is not None
        try:
            response = sent.started.wait()
        except RequestError as exc:
            sent.started = None
            self._recover(exc)
            return
        self._sent.popleft()
        if refused := self.settle(sent.blobs, response):
            self._recover(refused.error, refused.blobs)

    def _recover(self, error: RequestError, *refused: Blobs) -> None:
        """Bring what is in flight to its end, then send what of it did not arrive, one request at a time."""
        left = list(refused)
        self._again.update(*left)
        for sent in self._sent:
            if (blobs := self._left_of(sent)) is not None:
                left.append(blobs)
                self._again.update(blobs)
        self._sent.clear()
        self._again.clear()
        self._resend(left, error)

    def _left_of(self, sent: _Sent) -> Blobs | None:
        """Return the batches to send again of a request that is in flight or lost."""
        if sent.started is not None and not sent.started.is_lost:
            try:
                response = sent.started.wait()
            except RequestError:  # the first error is the one that counts
                pass
            else:
                refused = self.settle(sent.blobs, response)
                return None if refused is None else refused.blobs
        self._was_lost = True
        return sent.blobs

    def _resend(self, lost: list[Blobs], error: RequestError) -> None:
        retries = Retries(self._timeout_ms / 1000)
        while lost:
            try:
                retries.failed(error)
            except RequestError as exc:
                self.fail(lost, exc)
            try:
                with self._client.within(retries.give_up_at):
                    lost = self.missing(lost)
                    while lost:
                        response = self._client.call(self.request(lost[0]))
                        if response is not None and (refused := self.settle(lost[0], response)):
                            lost, error = [refused.blobs, *lost[1:]], refused.error
                            break
                        lost = lost[1:]
            except RequestError as exc:
                error, self._was_lost = exc, True
