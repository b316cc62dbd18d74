"""`broker.story()`: what clients did, in sentences, from the log of requests and the facts that it keeps.

A line stands for one request, or for many of a client that are alike: fetches of a partition, heartbeats, commits. Such a line
ends where something new happens to its client: it joins, gets partitions, leaves, or gets an error. A line has the time of its
first request, by the broker's clock, and the lines are in that order.

Clients are told apart by their client ids. Several clients of one id are one client here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.coordinator.classic_group_records import decode_assignment
from ....protocol.errors import TriologError
from ..faults.requests import LoggedRequest, RequestLog, Wanted
from ..faults.rules import is_one

SHOWN: Final = 8
"""Partitions that one line names."""
FIRST_STEP: Final = "MEMBER_ID_REQUIRED"
"""How a classic group gives a new member its id. The member joins again with it."""
TIMES: Final = {-1: "latest", -2: "earliest", -3: "newest record's"}


@attrs.frozen(kw_only=True)
class StoryLine:
    """A thing that a client did, in one or many requests, from `at_ms` to `until_ms` by the broker's clock, both inclusive."""

    at_ms: int
    until_ms: int
    client_id: str
    group: str | None
    """The group that the requests name, or else the one that the client has joined."""
    count: int
    """Requests."""
    text: str

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
        group = "" if self.group is None else f" ({self.group})"
        return f"{at} {self.client_id}{group} {self.text}"


@attrs.frozen(repr=False)
class Story:
    """The lines in order of time. `str(story)` has each on a line of its own."""

    lines: tuple[StoryLine, ...]
    forgotten: int
    """Earlier requests that the log does not keep any more."""

    def __str__(self) -> str:
        return self.tail(len(self.lines))

    def __repr__(self) -> str:
        return f"<story of {len(self.lines)} lines>"

    def tail(self, count: int) -> str:
        """The last lines."""
        shown = [str(line) for line in self.lines[max(0, len(self.lines) - count) :]]
        if len(shown) < len(self.lines):
            shown.insert(0, f"({len(self.lines) - len(shown)} earlier lines are left out)")
        if self.forgotten:
            shown.insert(0, f"({self.forgotten:,} earlier requests are forgotten)")
        return "\n".join(shown)

    def as_json(self) -> dict[str, Any]:
        return {"forgotten": self.forgotten, "lines": [attrs.asdict(line) for line in self.lines]}


def story_of(log: RequestLog, *, client_id: str | None = None, group: str | None = None) -> Story:
    """Tell what is in the log. `client_id`, `group`: only of these clients and groups; names may have `*` and `?`."""
    teller = _Teller()
    for request in log.find(Wanted(client_id=client_id)):
        teller.tell(request)
    lines = tuple(line.told() for line in teller.lines)
    if group is not None:
        lines = tuple(line for line in lines if is_one(group, () if line.group is None else (line.group,)))
    return Story(lines, max(0, log.count - len(log)))


@attrs.define(eq=False, repr=False)
class _Line:
    """A line that grows."""

    at_ms: int
    until_ms: int
    client_id: str
    group: str | None
    say: Callable[[_Line], str]
    count: int = 0
    numbers: list[int] = attrs.field(factory=list)
    """Offsets, in the order of the requests: the first and the last."""
    records: int = 0
    retries: int = 0

    def add_number(self, number: int) -> None:
        self.numbers[1:] = [number]

    def told(self) -> StoryLine:
        return StoryLine(
            at_ms=self.at_ms,
            until_ms=self.until_ms,
            client_id=self.client_id,
            group=self.group,
            count=self.count,
            text=self.say(self),
        )


Key = tuple[Any, ...]


@attrs.define(eq=False, repr=False)
class _Client:
    """The state of a client so far."""

    group: str | None = None
    open: dict[Key, _Line] = attrs.field(factory=dict)
    """Lines that still grow, by what they are about."""
    batches: set[Key] = attrs.field(factory=set)
    """Partition, producer and first sequence of each batch that it has sent."""


@attrs.define(eq=False, repr=False)
class _Teller:
    lines: list[_Line] = attrs.field(factory=list)
    _clients: dict[str, _Client] = attrs.field(factory=dict)

    def tell(self, request: LoggedRequest) -> None:
        """Add a request to the story."""
        client = self._clients.setdefault(request.client_id, _Client())
        if request.fault is not None or (request.errors and request.errors != (FIRST_STEP,)):
            self._tell_trouble(client, request)
        if request.api == "Produce":
            self._tell_produce(client, request)
        elif not request.errors and (request.error_codes is not None or request.fault is None):
            _TELL.get(request.api, _Teller._tell_other)(self, client, request)

    def _line(
        self, client: _Client, request: LoggedRequest, key: Key, say: Callable[[_Line], str], *, is_event: bool = False
    ) -> _Line:
        """The line of a request that is about `key`: one that grows, or a new one. A new event ends the others."""
        key = (request.groups[0] if request.groups else client.group, *key)
        line = client.open.get(key)
        if line is None:
            if is_event:
                client.open.clear()
            line = _Line(request.at_ms, request.at_ms, request.client_id, key[0], say)
            client.open[key] = line
            self.lines.append(line)
        line.until_ms = max(line.until_ms, request.at_ms)
        line.count += 1
        return line

    # ---- connections and errors ------------------------------------------------------------------------------------------

    def _tell_trouble(self, client: _Client, request: LoggedRequest) -> None:
        about = f"{request.api}{_of_topics(request)}"
        by = "" if request.fault is None else f", by fault #{request.fault}"
        if request.errors:
            text = f"got {' and '.join(request.errors)} for {about}{by}"
        elif request.error_codes is None:
            text = f"got no response to {about}{by}"
        else:
            text = f"met fault #{request.fault} with {about}"
        self._line(client, request, (text,), partial(_repeated, text=text), is_event=True)

    def _tell_connection(self, client: _Client, request: LoggedRequest) -> None:
        software = " ".join(part for part in request.facts if part)
        text = f"connected as {software}" if software else "connected"
        self._line(client, request, (text,), partial(_repeated, text=text))

    def _tell_login(self, client: _Client, request: LoggedRequest) -> None:
        if request.response_facts and request.response_facts[0]:
            text = f"logged in as {request.response_facts[0]}"
            self._line(client, request, (text,), partial(_repeated, text=text))

    def _tell_other(self, client: _Client, request: LoggedRequest) -> None:
        about = f"{request.api}{_of_topics(request)}"
        self._line(client, request, (about,), partial(_repeated, text=f"requested {about}"))

    # ---- records ---------------------------------------------------------------------------------------------------------

    def _tell_produce(self, client: _Client, request: LoggedRequest) -> None:
        stored = {fact[:2]: fact[2] for fact in request.response_facts}
        for topic, partition, records, producer in request.facts:
            batch = topic, partition, producer
            is_retry = producer[0] >= 0 and batch in client.batches
            client.batches.add(batch)
            place = topic, partition
            if place not in stored and (request.errors or request.error_codes is None):
                continue
            line = self._line(client, request, ("produce", place), partial(_produced, place=place))
            line.records += records
            line.retries += is_retry
            if place in stored and stored[place] >= 0:
                line.add_number(stored[place])
                line.add_number(max(line.numbers[-1], stored[place] + records - 1))

    def _tell_fetch(self, client: _Client, request: LoggedRequest) -> None:
        named = {(topic, partition): offset for topic, partition, offset in request.facts}
        for place in dict.fromkeys(_places(request)):
            offset = named.get(place)
            key = (request.groups[0] if request.groups else client.group, "fetch", place)
            before = client.open.get(key)
            if offset is not None and before is not None and before.numbers and offset < before.numbers[-1]:
                del client.open[key]  # it went back
            line = self._line(client, request, key[1:], partial(_positions, verb="fetched", place=place))
            if offset is not None:
                line.add_number(offset)

    def _tell_lookup(self, client: _Client, request: LoggedRequest) -> None:
        found = {fact[:2]: fact[2] for fact in request.response_facts}
        for topic, partition, timestamp in request.facts:
            offset = found.get((topic, partition), -1)
            what = f"the {TIMES[timestamp]} offset" if timestamp in TIMES else f"the offset of the time {timestamp}"
            text = f"looked up {what} of {topic}-{partition}: {offset}"
            self._line(client, request, (text,), partial(_repeated, text=text))

    # ---- groups ----------------------------------------------------------------------------------------------------------

    def _tell_commit(self, client: _Client, request: LoggedRequest) -> None:
        verb = "committed in a transaction" if request.api == "TxnOffsetCommit" else "committed"
        for topic, partition, offset in request.facts:
            place = topic, partition
            line = self._line(client, request, (verb, place), partial(_positions, verb=verb, place=place))
            line.add_number(offset)

    def _tell_join(self, client: _Client, request: LoggedRequest) -> None:
        if not request.response_facts:
            self._tell_other(client, request)
            return
        generation, member_id, is_leader = request.response_facts
        client.group = request.groups[0]
        text = f"joined as {member_id}, generation {generation}{', the leader' if is_leader else ''}"
        self._line(client, request, (text,), lambda line: text, is_event=True)

    def _tell_assignment(self, client: _Client, request: LoggedRequest) -> None:
        if not request.response_facts:
            self._tell_other(client, request)
            return
        places = _assignment(request.response_facts[0])
        text = "got an assignment" if places is None else f"got {_listed(places) or 'no partitions'}"
        self._line(client, request, (text,), lambda line: text, is_event=True)

    def _tell_heartbeat(self, client: _Client, request: LoggedRequest) -> None:
        self._line(client, request, ("heartbeat",), lambda line: f"sent {_counted(line.count, 'heartbeat')}")

    def _tell_member(self, client: _Client, request: LoggedRequest) -> None:
        [epoch] = request.facts or (0,)
        member_id, _, assigned = request.response_facts or ("", 0, None)
        if epoch < 0:
            self._tell_leave(client, request)
            return
        if epoch == 0:
            client.group = request.groups[0]
            text = f"joined as {member_id or request.subject.member_id}"
            self._line(client, request, (text,), lambda line: text, is_event=True)
        else:
            self._tell_heartbeat(client, request)
        if assigned is not None:
            got = f"got {_listed((name, number) for name, numbers in assigned for number in numbers) or 'no partitions'}"
            self._line(client, request, (got,), lambda line: got, is_event=True)

    def _tell_leave(self, client: _Client, request: LoggedRequest) -> None:
        self._line(client, request, ("leave",), lambda line: "left", is_event=True)
        client.group = None
        client.open = {}

    # ---- transactions ----------------------------------------------------------------------------------------------------

    def _tell_producer_id(self, client: _Client, request: LoggedRequest) -> None:
        if request.response_facts:
            producer_id, epoch = request.response_facts
            of = "".join(f" for {name}" for name in request.subject.transactional_ids)
            text = f"got producer id {producer_id}, epoch {epoch}{of}"
            self._line(client, request, (text,), lambda line: text, is_event=True)

    def _tell_transaction(self, client: _Client, request: LoggedRequest) -> None:
        verb = "committed" if any(request.facts) else "aborted"
        of = "".join(f" of {name}" for name in request.subject.transactional_ids)
        self._line(client, request, (verb, of), lambda line: f"{verb} {_counted(line.count, 'transaction')}{of}")


_TELL: Final[Mapping[str, Callable[[_Teller, _Client, LoggedRequest], None]]] = {
    "ApiVersions": _Teller._tell_connection,
    "SaslAuthenticate": _Teller._tell_login,
    "Fetch": _Teller._tell_fetch,
    "ListOffsets": _Teller._tell_lookup,
    "OffsetCommit": _Teller._tell_commit,
    "TxnOffsetCommit": _Teller._tell_commit,
    "JoinGroup": _Teller._tell_join,
    "SyncGroup": _Teller._tell_assignment,
    "Heartbeat": _Teller._tell_heartbeat,
    "ConsumerGroupHeartbeat": _Teller._tell_member,
    "ShareGroupHeartbeat": _Teller._tell_member,
    "StreamsGroupHeartbeat": _Teller._tell_member,
    "LeaveGroup": _Teller._tell_leave,
    "InitProducerId": _Teller._tell_producer_id,
    "EndTxn": _Teller._tell_transaction,
}


# ---- words -----------------------------------------------------------------------------------------------------------------


def _places(request: LoggedRequest) -> Iterator[tuple[str, int]]:
    return ((topic, number) for topic, numbers in request.topics.items() for number in numbers)


def _of_topics(request: LoggedRequest) -> str:
    names = list(request.topics)
    places = _listed(dict.fromkeys(_places(request)))
    return f" of {places}" if places else f" of {_cut(names)}" if names else ""


def _listed(places: Iterable[tuple[str, int]]) -> str:
    return _cut([f"{topic}-{number}" for topic, number in places])


def _cut(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _repeated(line: _Line, text: str) -> str:
    return text if line.count == 1 else f"{text}, {line.count:,} times"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _positions(line: _Line, verb: str, place: tuple[str, int]) -> str:
    """As `fetched orders-0 1,200 times, from 0 to 4711`."""
    text = f"{verb} {place[0]}-{place[1]}"
    if line.count > 1:
        text += f" {line.count:,} times"
    if line.numbers:
        first, last = line.numbers[0], line.numbers[-1]
        text += f" at {first}" if first == last else f", from {first} to {last}"
    return text


def _produced(line: _Line, place: tuple[str, int]) -> str:
    text = f"sent {_counted(line.records, 'record')} to {place[0]}-{place[1]}"
    if line.count > 1:
        text += f" in {line.count:,} requests"
    if line.numbers:
        first, last = line.numbers[0], line.numbers[-1]
        text += f", stored at {first}" if first == last else f", stored at {first} to {last}"
    if line.retries:
        text += f", {line.retries:,} of them sent again" if line.count > 1 else ", sent again"
    return text


def _assignment(data: bytes | None) -> list[tuple[str, int]] | None:
    """The partitions in an assignment of a classic group; None for one of another protocol than that of consumers."""
    if data is None:
        return None
    try:
        topics = decode_assignment(data).assigned_partitions
    except (TriologError, ValueError):
        return None
    return [(each.topic, number) for each in topics for number in each.partitions]
