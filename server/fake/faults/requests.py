"""The last requests of a broker, their subjects and their ends: a ring that tests read and wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from ....protocol.errors import error_name
from .rules import Subject, is_one, plain_name

CAPACITY: Final = 4096


@attrs.define(eq=False, repr=False)
class LoggedRequest:
    """A logged request. `error_codes` is None until the broker has responded."""

    number: int
    at_ms: int
    version: int
    subject: Subject
    size_bytes: int
    error_codes: tuple[int, ...] | None = None
    fault: int | None = None
    """The number of the rule that was carried out on it."""
    facts: tuple[Any, ...] = ()
    """For stories of clients; see `fake.kafka.request_facts`."""
    response_facts: tuple[Any, ...] = ()

    @property
    def api(self) -> str:
        return self.subject.api

    @property
    def client_id(self) -> str:
        return self.subject.client_id

    @property
    def node(self) -> int:
        return self.subject.node

    @property
    def topics(self) -> Mapping[str, Sequence[int]]:
        return self.subject.topics

    @property
    def groups(self) -> Sequence[str]:
        return self.subject.groups

    @property
    def errors(self) -> tuple[str, ...]:
        """Names of the errors in its answer."""
        return tuple(error_name(code) for code in self.error_codes or ())

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "at_ms": self.at_ms,
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "node": self.node,
            "topics": {name: list(numbers) for name, numbers in self.topics.items()},
            "groups": list(self.groups),
            "transactional_ids": list(self.subject.transactional_ids),
            "size_bytes": self.size_bytes,
            "is_answered": self.error_codes is not None,
            "errors": list(self.errors),
            "fault": self.fault,
        }

    def __str__(self) -> str:
        topics = ",".join(f"{name}{list(numbers) or ''}" for name, numbers in self.topics.items())
        end = "unanswered" if self.error_codes is None else ",".join(self.errors) or "ok"
        parts = [f"#{self.number} {self.api} v{self.version} client={self.client_id}", topics, ",".join(self.groups), end]
        if self.fault is not None:
            parts.append(f"fault={self.fault}")
        return " ".join(part for part in parts if part)

    def __repr__(self) -> str:
        return f"<request {self}>"


@attrs.frozen(kw_only=True)
class Wanted:
    """A filter of requests. Names may have `*` and `?`; None matches anything."""

    api: str | None = None
    topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    node: int | None = None
    error: str | None = None
    answered: bool | None = None
    after: int = 0
    """Only those with a higher number."""

    def is_met_by(self, request: LoggedRequest) -> bool:
        return (
            request.number > self.after
            and (self.api is None or plain_name(request.api) == plain_name(self.api))
            and is_one(self.topic, request.topics)
            and is_one(self.group, request.groups)
            and is_one(self.client_id, (request.client_id,))
            and (self.node is None or self.node == request.node)
            and (self.error is None or self.error in request.errors)
            and (self.answered is None or self.answered == (request.error_codes is not None))
        )


@attrs.define(eq=False, repr=False)
class RequestLog:
    """Owner: the broker's trio thread."""

    count: int = 0
    """Of all requests that ever came."""
    _kept: deque[LoggedRequest] = attrs.field(factory=lambda: deque(maxlen=CAPACITY))
    _watchers: list[Callable[[], None]] = attrs.field(factory=list)

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, at_ms: int, version: int, subject: Subject, size_bytes: int, facts: tuple[Any, ...] = ()) -> LoggedRequest:
        """Note a request that is taken up."""
        self.count += 1
        request = LoggedRequest(self.count, at_ms, version, subject, size_bytes, facts=facts)
        self._kept.append(request)
        if self._watchers:
            self._changed()
        return request

    def answered(self, request: LoggedRequest, error_codes: tuple[int, ...], facts: tuple[Any, ...] = ()) -> None:
        """Note how it ended."""
        request.error_codes, request.response_facts = error_codes, facts
        if self._watchers:
            self._changed()

    def find(self, wanted: Wanted) -> list[LoggedRequest]:
        """Those that are meant and still kept, oldest first."""
        return [request for request in self._kept if wanted.is_met_by(request)]

    def clear(self) -> None:
        """Forget the stored requests; numbers continue."""
        self._kept.clear()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call it at each change, until `unwatch`."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.remove(watcher)

    def _changed(self) -> None:
        for watcher in list(self._watchers):
            watcher()
