"""The loop of a blocking client: tasks that run only inside a call, deadlines of a program that was away, Ctrl-C, forks; and
select() in the place of poll(), as Windows has it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.tools.client.admin import Admin
from triolog.tools.client.appender import Appender
from triolog.tools.client.blocking import (
    BlockingAdmin,
    BlockingAppender,
    BlockingClient,
    BlockingConsumer,
    BlockingProducer,
    BlockingTransaction,
)
from triolog.tools.client.blocking.loop import InPlaceLoop
from triolog.tools.client.blocking.polling import READABLE, WRITABLE, Poll, SelectPoll
from triolog.tools.client.blocking.transaction import BlockingLogTransaction
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import Client
from triolog.tools.client.consumer import Consumer
from triolog.tools.client.producer import Producer
from triolog.tools.client.transaction import LogTransaction, Transaction

from tests.support.native_server_thread import ServerThread
from tests.tools.client.doors import QUICK, fill

T0 = TopicPartition("t", 0)


@pytest.fixture
def loop() -> InPlaceLoop:
    return InPlaceLoop()


def test_a_call_that_nothing_can_end_fails_instead_of_waiting(loop: InPlaceLoop) -> None:
    with pytest.raises(AssertionError, match="waits for nothing"):
        loop.run(wait_for(loop.parts.event().wait))


async def wait_for(function: Callable[[], Awaitable[Any]]) -> None:
    await function()


def test_the_failure_of_a_clients_own_task_is_raised_in_the_call_that_waits(loop: InPlaceLoop) -> None:
    async def fails() -> None:
        await loop.parts.sleep(0.001)
        raise ValueError("a fault")

    loop.start_soon(fails)
    with pytest.raises(ValueError, match="a fault"):
        loop.run(wait_for(loop.parts.event().wait))


def away_until(client: BlockingClient, moment: float) -> None:
    """Let a response come, and the time pass, without a call."""
    connection: Any = client.connected()
    select.select([connection._stream._socket], [], [], 10)
    while time.monotonic() < moment:
        pass


def test_a_program_that_was_away_finds_its_responses_although_their_time_is_up(thread: ServerThread) -> None:
    thread.run(lambda server: fill(server, 3))
    with BlockingClient(thread.address, ClientConfig(request_timeout_ms=30)) as client:
        started = client.start(m.MetadataRequest())
        away_until(client, started.overdue_at)
        assert isinstance(started.take(), m.MetadataResponse)
        with BlockingConsumer(client, partition_max_bytes=1, max_wait_ms=0, offset_reset=None) as consumer:
            consumer.assign(T0)
            assert consumer.next_batch() is not None
            before = client.connected()
            thread.run(lambda server: fill(server, 3))
            away_until(client, time.monotonic() + 0.04)
            batch = consumer.next_batch(timeout_s=10)
            assert batch is not None
            assert batch.first_offset == 3
            assert client.connected() is before, "the connection was given up"


def test_nothing_is_sent_while_the_program_does_not_call(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingProducer(client, linger_ms=1) as producer:
        producer.send("t", b"a", partition=0).result(10)
        waiting = producer.send("t", b"b", partition=0)
        moment = time.monotonic() + 0.02
        while time.monotonic() < moment:
            pass
        assert thread.run(lambda server: server.logs["t"][0].values()) == [b"a"]
        producer.poll()
        assert waiting.result(10).offset == 1


def test_ctrl_c_interrupts_the_call_that_waits_and_nothing_else(client: BlockingClient, thread: ServerThread) -> None:
    def interrupt(request: Any) -> None:
        if isinstance(request, m.FetchRequest) and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    sent: list[bool] = []
    thread.run(lambda server: server.faults.append(interrupt))
    with BlockingConsumer(client, max_wait_ms=5) as consumer:
        consumer.assign(T0)
        with pytest.raises(KeyboardInterrupt):
            consumer.next_batch(timeout_s=10)
        before = client.connected()
        thread.run(lambda server: fill(server, 1))
        assert consumer.next_batch(timeout_s=10) is not None
        assert client.connected() is before
    sent.clear()
    with pytest.raises(KeyboardInterrupt):
        client.fetch("t", max_wait_s=10, offset=1)
    assert client.metadata(m.MetadataRequest()).topics


def test_ctrl_c_waits_while_a_task_of_a_producer_computes(client: BlockingClient, thread: ServerThread) -> None:
    came: list[bool] = []

    def settled() -> None:
        signal.raise_signal(signal.SIGINT)
        came.append(True)  # an interrupted task would not come here

    with BlockingProducer(client, linger_ms=60_000) as producer:
        producer.send("t", b"a", partition=0).add_listener(settled)
        others = [producer.send("t", b"%d" % number, partition=1) for number in range(3)]
        with pytest.raises(KeyboardInterrupt):
            producer.flush(10)
        assert came == [True]
        assert [other.result(10).offset for other in others] == [0, 1, 2]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_client_that_is_dropped_closes_its_connection(thread: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop() -> Any:
        client = BlockingClient(thread.address, QUICK)
        producer = BlockingProducer(client, linger_ms=60_000)
        producer.send("t", b"a", partition=0)
        consumer = BlockingConsumer(client, max_wait_ms=5)
        consumer.assign(T0)
        with pytest.raises(TimeoutError):
            consumer.next_batch(timeout_s=0.001)
        connection: Any = client.connected()
        return connection._stream._socket

    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    opened = drop()
    gc.collect()
    assert ignored == []
    assert opened.fileno() == -1


FORKED = """
import os, sys
from triolog.tools.client.blocking import BlockingClient
address = ("127.0.0.1", int(sys.argv[1]))
with BlockingClient(address) as client:
    client.append("t", [b"parent"], partition=0)
    child = os.fork()
    if child == 0:
        with BlockingClient(address) as own:
            own.append("t", [b"child"], partition=0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.append("t", [b"parent again"], partition=0)
"""


def test_a_forked_process_has_a_client_of_its_own_beside_its_parents(thread: ServerThread) -> None:
    port = str(thread.address()[1])
    subprocess.run([sys.executable, "-c", FORKED, port], check=True, timeout=60)
    assert thread.run(lambda server: server.logs["t"][0].values()) == [b"parent", b"child", b"parent again"]


FACES: Final = {
    Client: BlockingClient,
    Admin: BlockingAdmin,
    Appender: BlockingAppender,
    Consumer: BlockingConsumer,
    Producer: BlockingProducer,
    Transaction: BlockingTransaction,
    LogTransaction: BlockingLogTransaction,
}
OF_TASKS: Final = {Consumer: {"run"}, Producer: {"run", "initialize"}}
"""Functions that are the client's own, for its tasks or its blocking face."""


@pytest.mark.parametrize("shared", FACES, ids=lambda kind: kind.__name__)
def test_blocking_programs_have_every_call_with_its_parameters(shared: type) -> None:
    for name, function in inspect.getmembers(shared, inspect.iscoroutinefunction):
        if not name.startswith("_") and name not in OF_TASKS.get(shared, ()):
            parameters = {*inspect.signature(function).parameters}
            blocking = {*inspect.signature(getattr(FACES[shared], name)).parameters}
            assert blocking - {"timeout_s"} == parameters, name


BOTH = READABLE | WRITABLE


@pytest.fixture(params=[select.poll, SelectPoll])
def poll(request: pytest.FixtureRequest) -> Poll:
    made: Poll = request.param()
    return made


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(each) for each in socket.socketpair())
        near.setblocking(False)
        yield near, far


def fill_socket(sending: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            sending.send(bytes(65536))


def test_both_report_what_a_socket_is_ready_for(poll: Poll, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    descriptor = near.fileno()
    poll.register(descriptor, READABLE)
    assert poll.poll(0) == []
    poll.register(descriptor, BOTH)
    assert poll.poll(None) == [(descriptor, WRITABLE)]
    far.send(b"espresso")
    assert poll.poll(None) == [(descriptor, BOTH)]
    fill_socket(near)
    assert poll.poll(None) == [(descriptor, READABLE)]
    poll.register(descriptor, WRITABLE)
    assert poll.poll(0) == []
    poll.unregister(descriptor)
    assert poll.poll(1) == []
    with pytest.raises(KeyError):
        poll.unregister(descriptor)


def test_both_wake_the_reader_of_a_socket_that_was_closed(poll: Poll, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    poll.register(descriptor := near.fileno(), READABLE)
    poll.register(far.fileno(), READABLE)
    near.close()
    assert descriptor in dict(poll.poll(None))
    poll.unregister(descriptor)
    assert [each for each, _ in poll.poll(None)] == [far.fileno()]


def test_select_returns_early_so_that_ctrl_c_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    poll = SelectPoll()
    poll.register(pair[0].fileno(), READABLE)
    assert poll.poll(None) == []
