"""Programs that append over HTTP with an `Idempotency-Key`, and repeat a request whose response did not come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs
import h11
import trio
from triolog.protocol.types import NO_OFFSET, TopicPartition
from triolog.server.listeners.http.produce import JSON_V2, NDJSON

from ..history import ON_ARRIVAL, Acknowledged, GivenUp, Send, Sent, Wrong
from ..network import HOST
from ..server import HTTP_PORT
from .inhabitant import BROKEN, CONNECT_PAUSE_S, Inhabitant

PATIENCE_S: Final = 20.0
RESPONSE_S: Final = 5.0
PAUSE_S: Final = 0.1
PAUSES_S: Final = (0.0, 0.0, 0.02, 0.5)
"""Between two pieces of a stream."""
TRY_AGAIN: Final = frozenset({400, 408, 409, 500, 503})
"""Statuses after which the same request is sent again."""

Parts = dict[TopicPartition, list[str]]
"""Ids of records by partition, in the order of the request."""


class _Request(NamedTuple):
    """A request that can be sent again."""

    path: str
    content_type: str
    key: str
    pieces: tuple[bytes, ...]
    """Of the body."""


class _Response(NamedTuple):
    status: int
    body: dict[str, Any]


@attrs.define(eq=False)
class HttpPoster(Inhabitant):
    """Each request has a new key. One that is repeated has the same key and the same body."""

    _sent: int = 0
    _requests: int = 0
    _stream: trio.abc.Stream | None = None
    _http: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.CLIENT))

    async def run(self, steps: list[Any]) -> None:
        try:
            await super().run(steps)
        finally:
            await self._close()

    async def post(self, topic: str, partitions: list[int], count: int) -> None:
        """A body of v2 with `count` records for each partition."""
        parts = self._parts(topic, partitions, count)
        records = [{"partition": where.partition, "value": json.loads(name)} for where, ids in parts.items() for name in ids]
        body = json.dumps({"records": records}).encode()
        answer = await self._ask(_Request(f"/topics/{topic}", JSON_V2, self._key(), (body,)))
        if answer is None:
            self._give_up(parts)
            return
        offsets = iter(answer.body["offsets"])
        for where, ids in parts.items():
            places = [next(offsets) for _ in ids]
            first = places[0]["offset"]
            if [(each["partition"], each["offset"]) for each in places] != [
                (where.partition, first + number) for number in range(len(ids))
            ]:
                self._wrong(f"{places} for {ids} of {where}")
            self.world.add(Acknowledged(**self.now(), partition=where, ids=tuple(ids), base_offset=first))

    async def stream(self, topic: str, partition: int, count: int) -> None:
        """Lines that leave one after the other."""
        parts = self._parts(topic, [partition], count)
        [(where, ids)] = parts.items()
        pieces = tuple(f"{name}\n".encode() for name in ids)
        answer = await self._ask(_Request(f"/topics/{topic}/partitions/{partition}", NDJSON, self._key(), pieces))
        if answer is None:
            self._give_up(parts)
            return
        known, ranges = answer.body["already_appended"], answer.body["offsets"]
        sizes = [each["last_offset"] - each["first_offset"] + 1 for each in ranges]
        if known + sum(sizes) != count or {each["partition"] for each in ranges} - {partition}:
            self._wrong(f"{answer.body} for {count} lines to {where}")
            return
        if known:
            self.world.add(Acknowledged(**self.now(), partition=where, ids=tuple(ids[:known]), base_offset=NO_OFFSET))
        for each, size in zip(ranges, sizes, strict=True):
            found, known = tuple(ids[known : known + size]), known + size
            self.world.add(Acknowledged(**self.now(), partition=where, ids=found, base_offset=each["first_offset"]))

    def _parts(self, topic: str, partitions: list[int], count: int) -> Parts:
        """Name the records of a request. The id of a record is its JSON, as the server stores it."""
        self._requests += 1
        parts: Parts = {}
        for number in partitions:
            where = TopicPartition(topic, number)
            parts[where] = [json.dumps(f"{self.who}:{self._sent + each}") for each in range(count)]
            self._sent += count
            records = tuple(Sent(name, ON_ARRIVAL) for name in parts[where])
            self.world.add(Send(**self.now(), partition=where, producer=self._key(), records=records))
        return parts

    def _key(self) -> str:
        return f"{self.who}/{self._requests}"

    def _give_up(self, parts: Parts) -> None:
        for ids in parts.values():
            self.world.add(GivenUp(**self.now(), ids=tuple(ids), error="no answer in time"))

    def _wrong(self, detail: str) -> None:
        self.world.add(Wrong(**self.now(), kind="http", detail=detail))

    async def _ask(self, request: _Request) -> _Response | None:
        """Send a request until its response says that all of its records are stored. None: the outcome is unknown."""
        deadline = trio.current_time() + PATIENCE_S
        while trio.current_time() < deadline:
            answer = await self._try(request)
            if answer is not None and answer.status == 200 and not any(map(_failed, answer.body["offsets"])):
                return answer
            if answer is not None and answer.status not in (200, *TRY_AGAIN):
                self._wrong(f"{answer} for {request.key}")
                return None
            await trio.sleep(PAUSE_S)
        return None

    async def _try(self, request: _Request) -> _Response | None:
        try:
            with trio.fail_after(RESPONSE_S):
                if self._stream is None:
                    await trio.sleep(CONNECT_PAUSE_S)
                    self._stream = await self.world.network.connect(HTTP_PORT)
                    self._http = h11.Connection(h11.CLIENT)
                await self._send(request)
                return await self._receive()
        except (*BROKEN, h11.ProtocolError):
            await self._close()
            return None

    async def _send(self, request: _Request) -> None:
        assert self._stream is not None
        is_stream = request.content_type == NDJSON
        size = ("transfer-encoding", "chunked") if is_stream else ("content-length", str(len(request.pieces[0])))
        headers = [("host", HOST), ("content-type", request.content_type), ("idempotency-key", request.key), size]
        head = h11.Request(method="POST", target=request.path, headers=headers)
        await self._stream.send_all(self._http.send(head))
        for event in self._body(request):
            if is_stream:
                await trio.sleep(self.rng.choice(PAUSES_S))
            if data := self._http.send(event):  # nothing would hang up
                await self._stream.send_all(data)

    def _body(self, request: _Request) -> Iterator[h11.Event]:
        yield from (h11.Data(data=piece) for piece in request.pieces)
        yield h11.EndOfMessage()

    async def _receive(self) -> _Response:
        assert self._stream is not None
        status, body = 0, b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some())
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
        if self._http.our_state is self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            await self._close()
        if not status:
            raise EOFError("the connection ended before the response")
        return _Response(status, json.loads(body))

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with trio.CancelScope(shield=True):
                await stream.aclose()


def _failed(place: dict[str, Any]) -> bool:
    """Return whether a record of a body, or a range of a stream, is not stored."""
    return place.get("error_code") is not None
