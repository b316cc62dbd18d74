"""`open_or_join`: several owners in one process, one after the other, and processes that fork."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import triolog
from trio.testing import MockClock
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY
from triolog.server.embedded.joining import SOCKET_FILE, JoinedBroker, ownership
from triolog.server.embedded.joining_aio import AioJoinedBroker
from triolog.server.embedded.joining_blocking import BlockingJoinedBroker
from triolog.server.storage.disk.checkpoints import META_PROPERTIES_FILE
from triolog.server.storage.errors import CheckpointError, LogDirectoryError
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.log_calls import LogCalls

from tests.server.embedded.drivers import DRIVERS, Face, Opened
from tests.server.embedded.programs import is_clean, run, running
from tests.support.brokers import PATIENCE_S, until
from tests.support.native_server import NativeServer
from tests.support.server_process import DEADLINE_S

T: Final = "orders"
FACES: Final[dict[str, Any]] = {"trio": triolog, "asyncio": triolog.aio, "blocking": triolog.blocking}
CALLS: Final = {name for name, _ in inspect.getmembers(LogCalls, inspect.isfunction) if not name.startswith("_")}


@pytest.fixture
def shared() -> Iterator[Path]:
    """A path that is short enough for a socket, under macOS too."""
    with tempfile.TemporaryDirectory(prefix="triolog-", dir="/tmp") as folder:
        yield Path(folder, "d")


def values(records: list[Any]) -> list[bytes | None]:
    return [record.value for record in records]


# ---- calls -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", [JoinedBroker, AioJoinedBroker, BlockingJoinedBroker])
def test_each_face_has_every_call_of_a_client_on_logs(face: type) -> None:
    assert {"append", "fetch", "follow", "offsets_for_times", "transaction"} <= CALLS
    assert {name for name in CALLS if not hasattr(face, name)} == set()


async def every_call(log: Any) -> None:
    """Through a face; the topic has two partitions."""
    assert await log.topics() == [T]
    assert len((await log.describe_topic(T)).partitions) == 2
    assert (await log.append(T, [(5000, None, b"a", ()), b"b"])).last_offset == 1
    assert await log.append_by_key(T, [(None, b"21", b"c", ())])
    assert values(await log.fetch(T))[:2] == [b"a", b"b"]
    assert (await log.offset_for_time(T, 5000)).offset == 0
    assert (await log.offsets_for_times([(TopicPartition(T, 0), -1)]))[0].offset >= 2
    async with log.transaction("copier") as transaction:
        await transaction.append(T, [b"d"], partition=1)
        await transaction.commit_offsets("g", {TopicPartition(T, 0): 2})
    aborted = log.transaction("copier")
    await aborted.begin()
    await aborted.append(T, [b"never"], partition=1)
    await aborted.abort()
    found = [record.value async for record in log.follow(T, max_wait_s=0)]
    assert sorted(found) == [b"a", b"b", b"c", b"d"]
    await log.create_topic("more")
    await log.delete_topic("more")


OPTIONS: Final[dict[str, Any]] = {"topics": {T: 2}, "config": {"retention.ms": "-1"}, "durability": "os"}


@asynccontextmanager
async def joined(face: str, path: Path) -> AsyncIterator[Face]:
    async with Face(FACES[face].open_or_join(path, **OPTIONS)) as log:
        yield log


@pytest.mark.parametrize("is_owner", [True, False])
@pytest.mark.parametrize("face", FACES)
def test_the_owner_and_those_that_join_have_the_same_calls(shared: Path, face: str, is_owner: bool) -> None:
    async def case(opened: Opened, begin: object) -> None:
        async with opened() as log:
            await every_call(log)

    with contextlib.nullcontext() if is_owner else triolog.blocking.open_or_join(shared, **OPTIONS):
        DRIVERS[face](case, partial(joined, face, shared))
    assert is_clean(shared)
    assert not (shared / ".socket").exists()


# ---- the owner -------------------------------------------------------------------------------------------------------------


async def test_another_process_becomes_the_owner_without_a_call(shared: Path) -> None:
    """`second` makes no call: whoever listens on the Kafka port is the owner."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        kafka = f"127.0.0.1:{free.getsockname()[1]}"
    async with triolog.open_or_join(shared, kafka=kafka, topics=[T]) as first:
        async with triolog.open_or_join(shared, kafka=kafka):
            await first.append(T, [b"1"])
            await first.aclose()
            await until(lambda: answers(kafka))
            with pytest.raises(ClosedError):
                await first.topics()


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


async def test_a_follow_continues_over_a_change_of_the_owner(shared: Path) -> None:
    async with triolog.open_or_join(shared, topics=[T]) as first, triolog.open_or_join(shared) as second:
        follow = second.follow(T, group="g")
        await first.append(T, [b"1"])
        assert (await anext(follow)).value == b"1"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.aclose)
            with trio.fail_after(PATIENCE_S):
                await second.append(T, [b"2"])
                record = await anext(follow)
        await record.commit()
        assert (record.offset, record.value) == (1, b"2")
        assert [each.value async for each in second.follow(T, group="g", max_wait_s=0)] == []


async def test_missing_topics_are_created_by_each_process(shared: Path) -> None:
    async with triolog.open_or_join(shared, topics={T: 2}), triolog.open_or_join(shared, topics={T: 3, "new": 1}) as second:
        assert sorted(await second.topics()) == ["new", T]
        assert len((await second.describe_topic(T)).partitions) == 2


async def test_only_processes_of_the_user_can_connect(shared: Path) -> None:
    async with triolog.open_or_join(shared):
        assert stat.S_IMODE((shared / ".socket").stat().st_mode) == 0o600
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700
        with ownership(str(shared)) as is_owner:
            assert not is_owner


async def test_a_process_that_cannot_serve_says_so_and_tries_again(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    properties = shared / META_PROPERTIES_FILE
    async with triolog.open_or_join(shared, topics=[T]) as first, triolog.open_or_join(shared) as second:
        kept = properties.read_bytes()
        properties.write_bytes(kept.replace(b"node.id=", b"node.id=x"))
        await first.aclose()
        with pytest.raises(ConnectionLostError, match=r"cannot serve .*cannot read .*; this attempt sent nothing"):
            await second.create_topic("new")
        assert "cannot own a directory that no other process serves" in caplog.text
        properties.write_bytes(kept)
        await second.create_topic("new")
    properties.write_bytes(kept.replace(b"node.id=", b"node.id=x"))
    with pytest.raises(CheckpointError, match="cannot read"):
        async with triolog.open_or_join(shared):
            pass


async def test_a_process_that_joins_while_the_owner_is_killed_becomes_the_owner(shared: Path) -> None:
    """The kernel resets a connection that the owner has not accepted."""
    shared.mkdir(exist_ok=True)
    address = str(shared / SOCKET_FILE)
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await listener.bind(address)
    listener.listen()

    async def die() -> None:
        connection, _ = await listener.accept()
        await connection.recv(1)  # the rest of the request is lost
        connection.close()
        listener.close()
        os.unlink(address)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(die)
        async with triolog.open_or_join(shared, topics=["orders"]) as log:
            assert list(await log.topics()) == ["orders"]


def test_a_directory_of_another_server_is_refused_with_its_process(shared: Path) -> None:
    with triolog.blocking.open(shared), pytest.raises(LogDirectoryError, match=f"process {os.getpid()}.*Stop it first"):
        triolog.blocking.open_or_join(shared).start()


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (MEMORY, {}, "needs a directory that processes can share"),
        ("/" + "d" * 96, {}, "a socket allows 103 bytes. Use a shorter path"),
        ("/d", {"settings": {"native_security": "sasl_ssl"}}, "native_security has no meaning"),
    ],
)
def test_what_cannot_be_shared_is_refused(path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        triolog.blocking.open_or_join(path, **options).start()


@pytest.mark.parametrize("face", [triolog.aio.open_or_join, triolog.blocking.open_or_join])
def test_an_option_that_only_open_has_is_refused(face: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=re.escape("open_or_join() has no option 'native'")):
        face("d", native="127.0.0.1:0")


# ---- calls that fail -------------------------------------------------------------------------------------------------------


class OverMemory(JoinedBroker):
    """Calls a server behind memory streams."""

    server: NativeServer

    async def _open_stream(self) -> Any:
        return await self.server.open_stream()


@pytest.fixture
async def lost(nursery: trio.Nursery) -> OverMemory:
    lost = OverMemory(nursery, "/d", unused)
    lost.server = NativeServer(nursery, orders=1)
    return lost


def unused() -> AbstractAsyncContextManager[Any]:
    raise AssertionError


async def test_a_call_that_is_sent_once_says_whether_it_was_sent(lost: OverMemory, autojump_clock: MockClock) -> None:
    lost.server.faults.append(lambda request: "drop after" if isinstance(request, m.ProduceRequest) else None)
    with pytest.raises(ConnectionLostError, match=r"produce in /d: .*; the request may have taken effect$"):
        await lost.append(T, [b"a"], acks=1)
    assert lost.server.logs[T][0].values() == [b"a"]
    lost.server.is_down = True
    with pytest.raises(ConnectionLostError, match=r"create_topics in /d: .*; this attempt sent nothing$"):
        await lost.create_topic("new")


async def test_an_abandoned_append_says_that_it_may_have_been_written(lost: OverMemory, autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    lost.server.faults.append(lambda request: "drop after" if isinstance(request, m.ProduceRequest) else None)
    with pytest.raises(ConnectionLostError, match=r"The records for 'orders' may have been written"):
        await lost.append(T, [b"a"])
    assert trio.current_time() - begun >= 119
    assert lost.server.logs[T][0].values() == [b"a"]


async def test_an_append_whose_response_is_lost_is_stored_once(lost: OverMemory, autojump_clock: MockClock) -> None:
    outcomes: list[str | None] = ["drop after", "drop", "drop after"]
    lost.server.faults.append(lambda one: outcomes.pop() if outcomes and isinstance(one, m.ProduceRequest) else None)
    assert (await lost.append(T, [b"a"])).base_offset == 0
    assert lost.server.logs[T][0].values() == [b"a"]


# ---- forks -----------------------------------------------------------------------------------------------------------------

FORK: Final = """
import asyncio, os, signal, sys, warnings
import triolog
from triolog.server.embedded import ForkedError

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12 on
path = sys.argv[1]

def forked(child):
    if (pid := os.fork()) == 0:
        try:
            child()
        except BaseException as exc:
            print(repr(exc), flush=True)
        os._exit(0)
    return pid
"""

JOINS_AGAIN: Final = (
    FORK
    + """
log = triolog.blocking.open_or_join(path, topics=["orders"])
if sys.argv[2] == "eager":
    log.append("orders", [b"parent"])
follow, transaction = log.follow("orders", max_wait_s=0), log.transaction("t")

def child():
    for call in (lambda: next(follow), transaction.begin):
        try:
            call()
        except ForkedError as exc:
            print("opened before" in str(exc), flush=True)
    log.append("orders", [b"child"])
    log.stop()

for _ in range(2):
    os.waitpid(forked(child), 0)
print([record.value for record in log.follow("orders", max_wait_s=0)], flush=True)
log.stop()
"""
)


@pytest.mark.merge
@pytest.mark.parametrize("when", ["lazy", "eager"])
def test_an_object_from_before_the_fork_joins_again_in_the_child(shared: Path, when: str) -> None:
    """A lazy one has a follow, too: `follow` joins, because it is a call."""
    status, printed, error = run(JOINS_AGAIN, shared, when)
    parents = [b"parent"] if when == "eager" else []
    assert (status, printed, error) == (0, "True\n" * 4 + f"{[*parents, b'child', b'child']}\n", "")
    assert is_clean(shared)


OF_ASYNCIO: Final = (
    FORK
    + """
async def main():
    async with triolog.aio.open_or_join(path, topics=["orders"]) as log:
        def child():
            log.append("orders", [b"child"]).send(None)
        os.waitpid(forked(child), 0)
        await log.append("orders", [b"parent"])
        print([record.value async for record in log.follow("orders", max_wait_s=0)])

asyncio.run(main())
"""
)


@pytest.mark.merge
def test_an_object_of_asyncio_raises_in_the_child(shared: Path) -> None:
    status, printed, error = run(OF_ASYNCIO, shared)
    assert (status, error) == (0, "")
    assert re.fullmatch(r"ForkedError\(.*open_or_join.*\)\n\[b'parent'\]\n", printed)


KILLED: Final = (
    FORK
    + """
log = {opened}
log.append("orders", [b"parent"])
print(forked(signal.pause), flush=True)
os.kill(os.getpid(), 9)
"""
)


@pytest.mark.merge
@pytest.mark.parametrize("opened", ["open_or_join(path", "open(path, native='127.0.0.1:0'"])
def test_a_child_that_does_nothing_keeps_nothing_of_a_killed_parent(shared: Path, opened: str) -> None:
    """Its copies of the lock and of sockets would keep the directory locked and connections open."""
    program = KILLED.format(opened=f"triolog.blocking.{opened}, topics=['orders'])" + ("" if "join" in opened else ".start()"))
    with running(program, shared) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert parent.wait(DEADLINE_S) == -9
            with triolog.blocking.open_or_join(shared) as log:
                assert values(log.fetch("orders")) == [b"parent"]
        finally:
            os.kill(child, signal.SIGKILL)
