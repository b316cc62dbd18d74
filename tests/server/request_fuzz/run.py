"""Sends what is drawn to a broker of the test's own loop, and says what must hold of it.

Every request has a well-formed answer, or its connection ends for a reason that is the peer's; nothing is logged as an error or
with a traceback, and not more lines than there were requests; another connection is served meanwhile; afterwards nothing of a
connection is left: no task, no byte of the budget, no session, no request.
"""

from __future__ import annotations

import gc
import logging
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import msgpack
import trio
from triolog.protocol.errors import RequestError
from triolog.protocol.limits import MAX_UNKNOWN_BYTES
from triolog.protocol.native import messages
from triolog.protocol.native.connection import LAST_ERROR_ID
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import PendingProduce, ShareKey
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.fake.faults.faults import Faults
from triolog.server.fake.faults.requests import RequestLog
from triolog.server.fake.kafka.watched import Watch
from triolog.server.listeners.connections.sockets import Listener
from triolog.server.listeners.kafka import session as kafka_session
from triolog.server.listeners.kafka.session import KafkaSession, Turn
from triolog.server.listeners.native import session
from triolog.server.listeners.native.calls import NativeCalls, native_listener
from triolog.server.listeners.native.session import Session

from tests.support.kafka_server import KafkaServer, kafka_server
from tests.support.kafka_stream import RECEIVE_BYTES, KafkaStream, connected, decode_answer
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer

from . import kafka_requests, native_requests
from .world import FURNISHED, SERVED_GROUPS, World

ROOT: Final = "root"
PATIENCE_S: Final = 60.0
WAIT_S: Final = 0.02
POLL_S: Final = 0.001
"""How long a client waits for what may take until others come; then it goes away."""
REFURNISH: Final = 100
"""Requests after which topics that were deleted are made again."""
CLIENTS: Final = 3
GARBAGE_ROUNDS: Final = 5
PARTITIONS: Final = 3
STORED: Final = build_batch([(START_MS, b"key", b"v" * 50, ())] * 7)
KEPT: Final = (KafkaSession, Session, Turn, PendingProduce, NativeCalls)
ENDED: Final = "is disconnected"
ENDING: Final = (session.LOGGER.name, kafka_session.LOGGER.name)
"""Who says why a connection ended."""
PEERS_FAULT: Final = re.compile(
    r"is disconnected: (a produce with acks=0 failed|[A-Z][A-Za-z]+ v\d+: .* elements, a message may have"
    r"|received \w+, expected .*|.*SaslHandshake|.*SaslAuthenticate|.*login"
    rf"|a frame claims \d+ bytes, expected 1 to max_frame_bytes={MAX_UNKNOWN_BYTES}$)"
)


class Logged(logging.Handler):
    """What the server writes down. `triolog serve` shows what is INFO and worse; why each connection ended is there for who
    debugs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.ends: list[str] = []
        self.wrong: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname} {record.name}: {record.getMessage()}"
        if ENDED in line:
            self.ends.append(line)
        if record.levelno < logging.INFO:
            return
        if record.exc_info:
            line += "\n" + logging.Formatter().formatException(record.exc_info)
        self.lines.append(line)
        if record.levelno >= logging.ERROR or record.exc_info or "bug" in line:
            self.wrong.append(line)

    def why_ended(self) -> str:
        """What was said of connections last."""
        return f"connections ended {self.ends[-3:]} after {self.lines[-3:]}"


@contextmanager
def logged() -> Iterator[Logged]:
    """Nobody else gets the lines: pytest would keep them, with the exceptions in them, and whole sessions with those."""
    handler, logger = Logged(), logging.getLogger("triolog")
    levels = {logger: logging.INFO, **{logging.getLogger(name): logging.DEBUG for name in ENDING}}
    before = {each: each.level for each in levels}
    logger.propagate = False
    logger.addHandler(handler)
    for each, level in levels.items():
        each.setLevel(level)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        for each, level in before.items():
            each.setLevel(level)
        logger.propagate = True


@attrs.define(eq=False)
class Fuzzed:
    """A broker with something of everything, and what has been asked of it. Owner: `run`."""

    server: KafkaServer
    native: Listener
    native_address: Address
    log: Logged
    users: tuple[str | None, ...]
    noted: RequestLog | None
    """Of a broker that is looked on: it keeps the last thousands of requests, as many as it may."""
    asked: Counter[str] = attrs.field(factory=Counter)
    ended: int = 0
    gone: int = 0
    """Connections that the server, and that a client, has ended while requests had no answers."""

    def topic_ids(self) -> dict[str, bytes]:
        broker = self.server.broker
        return {name: broker.topics.metadata(name).topic_id for name in broker.topics.names()}

    async def at_rest(self) -> None:
        """Wait until nothing is done any more for connections whose clients are gone: what they had no patience for goes on for
        a while, and would be laid to whoever comes next."""
        with trio.fail_after(PATIENCE_S):
            while self.server.listener.connections or self.native.connections:
                await trio.sleep(POLL_S)

    async def furnish(self) -> None:
        """Make what is missing."""
        broker = self.server.broker
        for name, config in FURNISHED.items():
            if name not in broker.topics.names():
                await broker.topics.create(name, PARTITIONS, config)
                for number in range(PARTITIONS):
                    for _ in range(3):
                        await broker.writer.append(TopicPartition(name, number), STORED)
        for name in FURNISHED:
            for number in range(PARTITIONS):
                key = ShareKey(SERVED_GROUPS[0], broker.topics.id_of(name), number)
                if broker.shares.read_summary(*key) is None:
                    await broker.shares.initialize(*key, start_offset=0)
        for number in range(2):
            try:
                producer = await TransactionalProducer.start(broker, f"mover-{number}")
                await producer.produce(TopicPartition("plain", number), "open")
                await producer.commit_offset("group-0", TopicPartition("plain", number), 3)
                if number:
                    await producer.abort()
            except RequestError:
                """A request has made it impossible: a partition without room, a topic that is configured otherwise."""

    async def is_serving(self) -> None:
        """Another connection is answered."""
        async with self.server.connected() as client:
            assert (await client.call(ask("ApiVersions", client_software_name="f", client_software_version="1"), 3)).api_keys


@asynccontextmanager
async def speaking(fuzzed: Fuzzed, user: str | None) -> AsyncIterator[KafkaStream]:
    async with connected(fuzzed.server.address) as client:
        if user is not None:
            await client.call(ask("SaslHandshake", mechanism="PLAIN"), 1)
            answer = await client.call(ask("SaslAuthenticate", auth_bytes=f"\x00{user}\x00{user}".encode()), 2)
            assert answer.error_code == 0, answer
        yield client


async def kafka_client(fuzzed: Fuzzed, world: World, requests: int) -> None:
    """Send as many, over one connection after the other."""
    number = 0
    while number < requests:
        user = world.one_of(fuzzed.users)
        async with speaking(fuzzed, user) as client:
            port = client.stream.socket.getsockname()[1]
            try:
                for _ in range(int(world.random.random() * 40) + 1):
                    burst = [_drawn(fuzzed, world, number + each) for each in range(world.one_of((1, 1, 1, 2, 5)))]
                    number += len(burst)
                    await client.send_raw(b"".join(sent.data for sent in burst))
                    if not await _answers(fuzzed, world, client, burst):
                        break
                    if number >= requests:
                        break
                else:
                    if world.chance(0.3):
                        await client.stream.send_eof()
            except (EOFError, trio.BrokenResourceError):
                fuzzed.ended += 1
                _check_peers_fault(fuzzed, port, user)


def _drawn(fuzzed: Fuzzed, world: World, number: int) -> kafka_requests.Sent:
    world.begin()
    sent = kafka_requests.draw(world, number + 1)
    fuzzed.asked[f"{sent.name} v{sent.version}"] += 1
    return sent


async def _answers(fuzzed: Fuzzed, world: World, client: KafkaStream, burst: list[kafka_requests.Sent]) -> bool:
    """Take the answers; False when the client has lost its patience and goes away."""
    may_wait = False
    for sent in burst:
        if sent.asked is None:
            continue
        may_wait |= sent.may_wait
        with trio.move_on_after(WAIT_S if may_wait else PATIENCE_S) as waiting:
            answer = decode_answer(sent.asked, await client.receive_frame())
            kafka_requests.learn(world, sent, answer)
        if waiting.cancelled_caught:
            assert may_wait, f"{sent.asked} {sent.body} has no answer"
            fuzzed.gone += 1
            return False
    return True


def _check_peers_fault(fuzzed: Fuzzed, port: int, user: str | None) -> None:
    lines = [line for line in fuzzed.log.ends if f"127.0.0.1:{port} " in line]
    if lines:
        assert any(PEERS_FAULT.search(line) for line in lines), lines
    else:
        assert fuzzed.server.door.sasl_mechanisms, f"the connection of port {port} was ended without a word, user {user}"


async def native_client(fuzzed: Fuzzed, world: World, requests: int) -> None:
    """The same for the native protocol."""
    number = 0
    while number < requests:
        client = NativeStream(await trio.open_tcp_stream(*fuzzed.native_address))
        async with client.stream:
            assert (await client.call(1, "hello", 1, {"client_id": "fuzz"}))[1] is None
            for each in range(int(world.random.random() * 40) + 1):
                number += 1
                world.begin()
                api, version, body = native_requests.draw(world)
                fuzzed.asked[f"native {api}"] += 1
                if body.get("acks") == 0:
                    await client.send(each + 2, api, version, body)
                    continue
                try:
                    correlation_id, error, answer = await client.call(each + 2, api, version, body)
                except (EOFError, trio.BrokenResourceError):
                    raise AssertionError(f"no answer and no last error, {fuzzed.log.why_ended()}: {api} {body}") from None
                if correlation_id == LAST_ERROR_ID:
                    fuzzed.ended += 1
                    break
                assert correlation_id == each + 2, (correlation_id, api, body)
                if error is None:
                    messages.decode_response(api, 1, answer)
                if number >= requests:
                    break


@attrs.define(eq=False)
class NativeStream:
    """A connection that sends bodies as they are, also those that no client of ours would write."""

    stream: trio.SocketStream
    _received: bytearray = attrs.field(factory=bytearray)

    async def call(self, correlation_id: int, api: str, version: int, body: Any) -> list[Any]:
        await self.send(correlation_id, api, version, body)
        (size,) = struct.unpack(">I", await self._exactly(4))
        return msgpack.unpackb(await self._exactly(size), strict_map_key=False)

    async def send(self, correlation_id: int, api: str, version: int, body: Any) -> None:
        data = msgpack.packb([correlation_id, api, version, body])
        await self.stream.send_all(struct.pack(">I", len(data)) + data)

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            with trio.fail_after(PATIENCE_S):
                data = await self.stream.receive_some(RECEIVE_BYTES)
            if not data:
                raise EOFError
            self._received += data
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


@asynccontextmanager
async def fuzzed_broker(path: Path, *, users: tuple[str | None, ...] = (None,), **settings: Any) -> AsyncIterator[Fuzzed]:
    """A furnished broker with a listener of either protocol."""
    settings = {
        "group_initial_rebalance_delay_ms": 0,
        "group_min_session_timeout_ms": 1,
        "connection_failed_authentication_delay_ms": 1,
        "max_lease_ms": 1000,
        "telemetry_enable": True,
        **settings,
    }
    with logged() as log:
        async with kafka_server(path, **settings) as server, trio.open_nursery() as nursery:
            native = native_listener(server.broker, Address("127.0.0.1", 0), server.admission)
            watch: Watch | None = settings.get("watch")
            noted = None if watch is None else watch.requests
            fuzzed = Fuzzed(server, native, await nursery.start(native.run), log, users, noted)
            await fuzzed.furnish()
            yield fuzzed
            nursery.cancel_scope.cancel()


async def run(fuzzed: Fuzzed, requests: int, seed: int, say: Callable[[str], None] = lambda text: None) -> None:
    """Send as many requests and check what must hold, also afterwards."""
    await send(fuzzed, requests, seed, say)
    await _check_nothing_left(fuzzed)


async def send(fuzzed: Fuzzed, requests: int, seed: int | str, say: Callable[[str], None] = lambda text: None) -> None:
    """Send as many requests and check what must hold while the broker serves."""
    done = 0
    while done < requests:
        part = min(REFURNISH * 4 * CLIENTS, requests - done)
        share = max(1, part // (CLIENTS + 1))
        async with trio.open_nursery() as nursery:
            for client in range(CLIENTS):
                world = World(Random(f"{seed} {done} {client}"), fuzzed.topic_ids)
                nursery.start_soon(kafka_client, fuzzed, world, share)
            nursery.start_soon(native_client, fuzzed, World(Random(f"{seed} {done} native"), fuzzed.topic_ids), share)
        done += part
        await fuzzed.is_serving()
        assert not fuzzed.log.wrong, "\n".join(fuzzed.log.wrong[:5])
        assert len(fuzzed.log.lines) <= done, "more lines of the log than requests"
        await fuzzed.furnish()
        say(f"{done} requests, {fuzzed.ended} ended, {fuzzed.gone} gone, {len(fuzzed.log.lines)} lines")


async def _check_nothing_left(fuzzed: Fuzzed) -> None:
    listeners = (fuzzed.server.listener, fuzzed.native)
    for listener in listeners:
        listener.stop(grace_s=PATIENCE_S)
    with trio.fail_after(PATIENCE_S):
        while any(listener.connections for listener in listeners):
            await trio.sleep(0.001)
    assert fuzzed.server.admission.budget.used == 0
    for _ in range(GARBAGE_ROUNDS):  # a session's task is reaped a turn after its connection was counted as gone
        await trio.lowlevel.checkpoint()
        gc.collect()
        kept = Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, KEPT))
        if not kept:
            break
    assert not kept, kept
    assert not fuzzed.log.wrong, "\n".join(fuzzed.log.wrong[:5])


def _strict() -> dict[str, Any]:
    return {}


def _watched() -> dict[str, Any]:
    """As an embedded broker is: lenient, and looked on."""
    return {"lenient": True, "watch": Watch(Faults(), RequestLog(), lambda: START_MS)}


def _secured() -> dict[str, Any]:
    """root may do everything, alice what requests allow her."""
    return {
        "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": {"root": "root", "alice": "alice"},
        "acl_enable": True,
        "super_users": ("User:root", "User:ANONYMOUS"),
        "users": ("root", "root", "alice", "alice", None),
    }


VARIANTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {"strict": _strict, "watched": _watched, "secured": _secured}
