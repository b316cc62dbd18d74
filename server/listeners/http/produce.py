"""Appends over HTTP: `POST /topics/TOPIC` and `POST /topics/TOPIC/partitions/N`. Source: the v2 API of Confluent's REST Proxy,
which Redpanda's HTTP Proxy has too. `bodies` has the formats, `login` the users.

A response comes when its records are durable as the topic's `durability` says. Every check that needs no body comes before the
body: the login, the right WRITE on the topic, the topic itself.

A stream of lines is appended while it arrives, one batch after the other. A batch is whatever has come while the one before was
appended. An error ends the stream; the response says which offsets its records have so far.

An `Idempotency-Key` is a producer id, a digest of the key, its principal and the topic, so the log itself remembers it: a batch
of a body begins with a sequence that is a digest of the body, and a stream counts its records from 0.

*Invariants*: a response names every record that was appended, and no other; a connection holds memory that its share of the
budget is charged for.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from time import perf_counter
from typing import Final, NamedTuple
from urllib.parse import unquote

import attrs
import trio

from ....protocol.errors import AuthorizationError, ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import DENIED, AclOperation, ResourceType
from ....protocol.limits import KIB
from ....protocol.records.partitioners import partition_for_key
from ....protocol.types import ANONYMOUS, AppendResult, TopicPartition
from ...broker import PRODUCER_BYTE_RATE, Broker, producer_of_key
from ...config.broker_config import Address
from ..connections.budget import Share
from ..connections.counters import report_bug
from ..connections.session import USER_PREFIX
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport
from .access import HttpAccess, HttpAnswer, HttpRefusalError, HttpRequest
from .bodies import InvalidBodyError, LineCutter, LineTooLongError, check_line, read_records
from .login import HttpLogin
from .session import MAX_BODY_BYTES, HttpSession
from .stream import TransportStream

JSON_V2: Final = "application/vnd.kafka.json.v2+json"
BINARY_V2: Final = "application/vnd.kafka.binary.v2+json"
NDJSON: Final = "application/x-ndjson"
TYPES: Final = (JSON_V2, BINARY_V2, NDJSON)
"""No foreign page has a browser send them without asking first."""
ANSWER_V2: Final = "application/vnd.kafka.v2+json"
PATH: Final = re.compile(r"/topics/([^/]+)(?:/partitions/(\d{1,9}))?/?")
CLIENT_ID: Final = "http"
"""As quotas name the clients of this listener."""
MOST_KEY_CHARS: Final = 255
HELD_PER_BYTE: Final = 6
"""Of a body: its bytes, its text with up to four bytes a character, its records."""
HELD_PER_RECORD: Final = 700
"""Beside its bytes: objects, and its part of the response. `{}` is a record."""
MAX_RECORDS: Final = 20_000
"""Of a body of v2."""
HELD_PER_STREAMED_BYTE: Final = 3
HELD_PER_LINE: Final = 128
"""Beside its bytes: objects."""
BATCH_BYTES: Final = 512 * KIB
BATCH_RECORDS: Final = 10_000
RECORD_OVERHEAD_BYTES: Final = 32
"""Of a line in a batch, at most."""
BATCH_OVERHEAD_BYTES: Final = 64
RECORDS_PER_TURN: Final = 64
PARTITIONS_AT_ONCE: Final = 16
MOST_RANGES: Final = 10_000
"""Of offsets in a response: the records of other clients may be between those of a stream."""
MOST_SEQUENCE: Final = 2**31 - 1

OF_CODE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, 40401),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.MESSAGE_TOO_LARGE: (413, 413),
    ErrorCode.RECORD_LIST_TOO_LARGE: (413, 413),
    ErrorCode.CORRUPT_MESSAGE: (422, 42201),
    ErrorCode.INVALID_RECORD: (422, 42201),
    ErrorCode.INVALID_REQUEST: (422, 42201),
    ErrorCode.INVALID_TIMESTAMP: (422, 42201),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (422, 42201),
}
"""Status and code of Confluent's REST Proxy by Kafka's; others are 50002, or 50003 where a retry may help."""
BUSY_KEY: Final = "another stream with this Idempotency-Key is being appended, or began with other lines"
OTHER_BODY: Final = "this Idempotency-Key came with another body before. Use a new key for a new body"


def produce_listener(broker: Broker, address: Address, admission: Admission) -> Listener:
    """The listener of one address. Its connections have places and memory like those of the other listeners."""
    access, turns = HttpAccess(HttpAccess.of(address).is_loopback, more_types=TYPES), itertools.count()

    def open_session(transport: Transport) -> Served:
        share = admission.budget.open_share()
        produce = HttpProduce(broker, transport, share, access, turns)

        def report(what: str, error: Exception) -> None:
            report_bug(transport.counters, what, error)

        session = HttpSession(
            TransportStream(transport),
            transport.peer,
            produce.answer,
            report,
            leaves_bodies=True,
            became_idle=transport.became_idle,
        )
        produce.pause = session.pause
        share.give_up = lambda _: session.stop_reading()

        async def serve() -> None:
            try:
                await session.serve()
            finally:
                share.close()

        return Served(serve, session.stop_reading)

    return Listener(address, admission, open_session, "http", gathering=broker.disk.gathering)


class Target(NamedTuple):
    """The topic and the partition of a request's records."""

    topic: str
    partitions: int
    partition: int | None
    """That the path names."""
    key: str | None
    """The idempotency key."""


async def _no_pause(seconds: float) -> None:
    """Outside of a session."""


@attrs.define(eq=False, repr=False)
class HttpProduce:
    """The requests of one connection. Owner: its session."""

    broker: Broker
    transport: Transport
    share: Share
    access: HttpAccess
    _turns: Iterator[int]
    """Which partition is next for a request that names none."""
    pause: Callable[[float], Awaitable[None]] = _no_pause
    login: HttpLogin = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.login = HttpLogin(self.broker, self.transport)
        share = self.share
        share.payer = lambda: self.transport.host if self.login.principal == ANONYMOUS else self.login.principal
        share.unread_bytes = lambda: share.held

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Respond to a request of the listener."""
        began = perf_counter()
        codes: tuple[int, ...] = ()
        try:
            answer, codes = await self._answer(request)
        except HttpRefusalError as exc:
            answer = refusal(exc.status, exc.code, exc.message)
        except RequestError as exc:
            answer, codes = refusal(*status_of(exc), exc.message), (exc.code,)
        finally:
            self.hold(0)
            counters = self.transport.counters.apis["produce"]
            counters.durations.add(perf_counter() - began)
            counters.note_errors(codes)
        return answer

    async def _answer(self, request: HttpRequest) -> tuple[HttpAnswer, tuple[int, ...]]:
        path = PATH.fullmatch(request.path)
        if path is None:
            raise HttpRefusalError(404, "use POST /topics/TOPIC, or /topics/TOPIC/partitions/N")
        if request.method != "POST":
            raise HttpRefusalError(405, f"{request.path[:100]} takes POST")
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in TYPES:
            raise HttpRefusalError(415, f"use Content-Type: {' or '.join(TYPES)}")
        if (refused := self.access.refusal(request)) is not None:
            raise HttpRefusalError(refused.status, refused.body.decode().strip())
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HttpRefusalError(415, "a body with Content-Encoding is not accepted")
        await self.login.check(request.headers.get("authorization", ""))
        self.transport.became_known()
        target = self._target(unquote(path[1]), path[2], request.headers.get("idempotency-key"))
        if content_type == NDJSON:
            return await self._produce_lines(request, target)
        return await self._produce_body(request, target, is_binary=content_type == BINARY_V2)

    def _target(self, topic: str, partition: str | None, key: str | None) -> Target:
        security, principal = self.broker.security, self.login.principal
        if security.authorizer is not None and not security.allows(
            principal, self.transport.host, AclOperation.WRITE, ResourceType.TOPIC, topic
        ):
            raise AuthorizationError(f"{principal} may not WRITE TOPIC {topic[:100]}", DENIED[ResourceType.TOPIC])
        count, number = self.broker.topics.partition_count(topic), None if partition is None else int(partition)
        if number is not None and number >= count:
            raise HttpRefusalError(404, f"topic {topic} has no partition {number}, it has {count}", 40402)
        if key is not None and not (0 < len(key) <= MOST_KEY_CHARS and key.isprintable()):
            raise HttpRefusalError(422, f"Idempotency-Key has 1 to {MOST_KEY_CHARS} printable characters", 42201)
        return Target(topic, count, number, key)

    # ---- memory and quotas ----------------------------------------------------------------------------------------------

    async def receive(self, request: HttpRequest, held_per_byte: int) -> bytes:
        """Return the next piece of the body, charged to the connection's share."""
        assert request.receive is not None
        self.share.is_receiving = True
        try:
            piece = await request.receive()
        finally:
            self.share.is_receiving = False
        self.share.held += held_per_byte * len(piece)
        await self.share.charge()
        quotas = self.broker.security.quotas
        if quotas.is_active:
            user = self.login.principal.removeprefix(USER_PREFIX)
            if seconds := quotas.use(PRODUCER_BYTE_RATE, user, CLIENT_ID, len(piece), trio.current_time()):
                await self.pause(seconds)
        return piece

    def hold(self, size: int) -> None:
        """Set what the request holds now. More than before is charged with the next piece."""
        share = self.share
        is_less, share.held = size < share.held, size
        if is_less:
            share.is_whole = True
            share.give_back()
            share.is_whole = False

    # ---- bodies of v2 ---------------------------------------------------------------------------------------------------

    async def _produce_body(
        self, request: HttpRequest, target: Target, *, is_binary: bool
    ) -> tuple[HttpAnswer, tuple[int, ...]]:
        body = await self._read_body(request)
        unkeyed = target.partition
        if unkeyed is None:
            digest = None if target.key is None else self._producer("body", target)
            unkeyed = (next(self._turns) if digest is None else digest) % target.partitions
        places: list[tuple[int, int]] = []
        batches: dict[int, list[tuple[None, bytes | None, bytes | None, tuple[()]]]] = {}
        try:
            for number, record in enumerate(read_records(body, is_binary=is_binary)):
                if number == MAX_RECORDS:
                    raise HttpRefusalError(413, f"a body has at most {MAX_RECORDS} records. Send {NDJSON}, which has no limit")
                if not number % RECORDS_PER_TURN:
                    self.share.held += RECORDS_PER_TURN * HELD_PER_RECORD
                    await self.share.charge()
                    await trio.lowlevel.checkpoint()
                partition = self._partition_of(record.partition, number, record.key, target, unkeyed)
                records = batches.setdefault(partition, [])
                places.append((partition, len(records)))
                records.append((None, record.key, record.value, ()))
        except InvalidBodyError as exc:
            raise HttpRefusalError(422, str(exc), 42201) from None
        if not places:
            raise HttpRefusalError(422, "the body has no records", 42201)
        producer = None
        if target.key is not None:
            digest = int.from_bytes(hashlib.blake2b(body, digest_size=4).digest()) >> 2
            producer = self._producer("body", target), digest
        results = dict[int, AppendResult | RequestError]()

        async def append(partition: int) -> None:
            place = TopicPartition(target.topic, partition)
            try:
                results[partition] = await self.broker.writer.append(place, batches[partition], producer=producer)
            except RequestError as exc:
                is_other = exc.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                results[partition] = InvalidRequestError(OTHER_BODY) if is_other else exc

        numbers = list(batches)
        for start in range(0, len(numbers), PARTITIONS_AT_ONCE):
            async with trio.open_nursery() as nursery:
                for partition in numbers[start : start + PARTITIONS_AT_ONCE]:
                    nursery.start_soon(append, partition)
        failures = [result for result in results.values() if isinstance(result, RequestError)]
        if len(failures) == len(results):
            raise failures[0]
        offsets = [_entry(partition, index, results[partition]) for partition, index in places]
        answer = HttpAnswer.json(200, {"offsets": offsets, "key_schema_id": None, "value_schema_id": None})
        return answer._replace(content_type=ANSWER_V2), tuple({failure.code for failure in failures})

    async def _read_body(self, request: HttpRequest) -> bytes:
        """Raises HttpRefusalError for one that is too large, if its length is known before it is received."""
        body = bytearray()
        size = request.headers.get("content-length", "0")
        while len(size) > len(str(MAX_BODY_BYTES)) or int(size) <= MAX_BODY_BYTES:
            piece = await self.receive(request, HELD_PER_BYTE)
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > MAX_BODY_BYTES:
                break
        raise HttpRefusalError(413, f"a body has at most {MAX_BODY_BYTES} bytes. Send {NDJSON}, which has no limit")

    def _partition_of(self, named: int | None, number: int, key: bytes | None, target: Target, unkeyed: int) -> int:
        if named is not None:
            if target.partition is not None:
                raise HttpRefusalError(422, f"record {number} names a partition, and so does the path", 42201)
            if named >= target.partitions:
                raise HttpRefusalError(404, f"record {number}: topic {target.topic} has no partition {named}", 40402)
            return named
        if target.partition is None and key is not None:
            return partition_for_key(key, target.partitions)
        return unkeyed

    def _producer(self, kind: str, target: Target) -> int:
        assert target.key is not None
        return producer_of_key(kind, self.login.principal, target.topic, target.key)

    # ---- streams of lines -----------------------------------------------------------------------------------------------

    async def _produce_lines(self, request: HttpRequest, target: Target) -> tuple[HttpAnswer, tuple[int, ...]]:
        producer_id = None if target.key is None else self._producer("lines", target)
        partition = target.partition
        if partition is None:
            partition = (next(self._turns) if producer_id is None else producer_id) % target.partitions
        place = TopicPartition(target.topic, partition)
        writer = self.broker.writer
        most = writer.largest_batch(place) - BATCH_OVERHEAD_BYTES
        known = 0 if producer_id is None else writer.keyed_count(place, producer_id)
        stream = LineStream(self, place, LineCutter(most - RECORD_OVERHEAD_BYTES), min(most, BATCH_BYTES), producer_id, known)
        try:
            await stream.run(request)
        except HttpRefusalError as exc:
            return refusal(exc.status, exc.code, exc.message, stream.report()), ()
        except RequestError as exc:
            return refusal(*status_of(exc), exc.message, stream.report()), (exc.code,)
        return HttpAnswer.json(200, stream.report())._replace(content_type=ANSWER_V2), ()


PlainLine = tuple[None, None, bytes, tuple[()]]


@attrs.define(eq=False, repr=False)
class LineStream:
    """A stream of lines on its way into one partition. Owner: its request; a second task appends meanwhile."""

    produce: HttpProduce
    partition: TopicPartition
    cutter: LineCutter
    most_bytes: int
    """Of a batch."""
    producer_id: int | None
    known: int
    """Records of this key that the log has already: so many are skipped."""
    _ranges: list[tuple[int, int]] = attrs.field(factory=list)
    """First and last offsets of what was appended."""
    _count: int = 0
    """Of records that were cut, skipped ones included."""
    _appended: int = 0
    _failure: RequestError | HttpRefusalError | None = None
    _records: list[PlainLine] = attrs.field(factory=list)
    """The next batch."""
    _bytes: int = 0
    """Of it."""
    _held_by_append: int = 0
    _is_complete: bool = False
    _has_more: trio.Event = attrs.field(factory=trio.Event)
    _has_room: trio.Event = attrs.field(factory=trio.Event)

    def report(self) -> dict[str, object]:
        """Return what a response says of the records."""
        number = self.partition.partition
        return {
            "records": self._appended,
            "already_appended": min(self.known, self._count),
            "offsets": [{"partition": number, "first_offset": first, "last_offset": last} for first, last in self._ranges],
        }

    async def run(self, request: HttpRequest) -> None:
        """Receive and append to the end. Raises HttpRefusalError or RequestError; the records before the error are appended."""
        failure: HttpRefusalError | None = None
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as receiving:
                nursery.start_soon(self._append_each, receiving)
                try:
                    await self._receive_all(request)
                except HttpRefusalError as exc:
                    failure = exc
            self._is_complete = True
            self._has_more.set()
        if (first := self._failure or failure) is not None:
            raise first

    async def _receive_all(self, request: HttpRequest) -> None:
        try:
            while piece := await self.produce.receive(request, HELD_PER_STREAMED_BYTE):
                await self._add(self.cutter.cut(piece))
                self._hold()
            await self._add(self.cutter.last())
        except InvalidBodyError as exc:
            raise HttpRefusalError(422, str(exc), 42201) from None
        except LineTooLongError as exc:
            raise HttpRefusalError(413, str(exc)) from None

    async def _add(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            self._count += 1
            if self._count <= self.known:
                continue
            check_line(line, self.cutter.number)
            size = len(line) + RECORD_OVERHEAD_BYTES
            while self._records and (self._bytes + size > self.most_bytes or len(self._records) == BATCH_RECORDS):
                self._has_room = trio.Event()
                await self._has_room.wait()
            self._records.append((None, None, line, ()))
            self._bytes += size
            self._has_more.set()

    def _take(self) -> list[PlainLine]:
        self._held_by_append = self._held
        records, self._records, self._bytes = self._records, [], 0
        self._has_room.set()
        return records

    @property
    def _held(self) -> int:
        return HELD_PER_STREAMED_BYTE * self._bytes + HELD_PER_LINE * len(self._records)

    def _hold(self) -> None:
        self.produce.hold(self._held_by_append + self._held + HELD_PER_STREAMED_BYTE * self.cutter.rest_bytes)

    async def _append_each(self, receiving: trio.CancelScope) -> None:
        writer, producer = self.produce.broker.writer, None
        try:
            while True:
                while not self._records and not self._is_complete:
                    self._has_more = trio.Event()
                    await self._has_more.wait()
                if not self._records:
                    return
                records = self._take()
                if self.producer_id is not None:
                    producer = self.producer_id, self.known + self._appended
                    if producer[1] + len(records) > MOST_SEQUENCE:
                        raise HttpRefusalError(413, f"a stream with a key has at most {MOST_SEQUENCE} records")
                result = await writer.append(self.partition, records, producer=producer)
                self._note(result.base_offset, len(records))
                self._held_by_append = 0
                self._hold()
        except (RequestError, HttpRefusalError) as exc:
            is_other = isinstance(exc, RequestError) and exc.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._failure = HttpRefusalError(409, BUSY_KEY) if is_other else exc
            receiving.cancel()

    def _note(self, first: int, count: int) -> None:
        self._appended += count
        last = first + count - 1
        if self._ranges and self._ranges[-1][1] + 1 == first:
            self._ranges[-1] = self._ranges[-1][0], last
        elif len(self._ranges) < MOST_RANGES - 1:
            self._ranges.append((first, last))
        else:
            self._ranges.append((first, last))
            raise HttpRefusalError(413, f"the records are in {MOST_RANGES} ranges of offsets. Send the rest as another stream")


def _entry(partition: int, index: int, result: AppendResult | RequestError) -> dict[str, int | str | None]:
    """The part of a response about one record, as Confluent's REST Proxy has it."""
    if isinstance(result, RequestError):
        code = 2 if result.retriable else 1
        return {"partition": None, "offset": None, "error_code": code, "error": result.message}
    return {"partition": partition, "offset": result.base_offset + index, "error_code": None, "error": None}


def status_of(error: RequestError) -> tuple[int, int]:
    """Return the status and the code of Confluent's REST Proxy."""
    return OF_CODE.get(error.code, (500, 50003 if error.retriable else 50002))


def refusal(status: int, code: int, message: str, more: Mapping[str, object] | None = None) -> HttpAnswer:
    """A response that says in one line why a request failed."""
    line = " ".join(message.split())
    answer = HttpAnswer.json(status, {"error_code": code, "message": line, **(more or {})})
    headers = {401: ("www-authenticate", 'Basic realm="triolog", Bearer'), 405: ("allow", "POST")}
    return answer._replace(content_type=ANSWER_V2, headers=tuple(headers[each] for each in headers if each == status))
