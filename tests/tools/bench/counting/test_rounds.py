"""Counts of a server that does next to nothing: what is added to it is counted to the last call."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.messages.groups import HeartbeatResponse
from triolog.protocol.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetPartitionError,
)
from triolog.protocol.schema import codec
from triolog.tools.bench.counting.meters import Counts
from triolog.tools.bench.counting.rounds import Peer, Rounds
from triolog.tools.bench.counting.served import read_kafka_answer
from triolog.tools.bench.measuring.child import LoadFailedError

FRAME = b"\0\0\0\3abc"
STRAY = 2.0
"""Calls of trio's that a request does not always take."""


def add(first: int, second: int) -> int:
    return first + second


@asynccontextmanager
async def echo_rounds(
    *,
    peers: int = 1,
    calls: int = 0,
    turns: int = 0,
    threaded: range = range(0),
    check: Callable[[bytes], None] = lambda _: None,
) -> AsyncIterator[Rounds]:
    """Of a server that answers each request after so many calls of a function and so many turns for others. Those requests that
    are `threaded` take many calls more, and it says that a thread had to do with them. It uses one to say it, too."""
    answered = looks = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal answered
        while await stream.receive_some(1024):
            answered += 1
            for _ in range(calls + 100 * (answered in threaded)):
                add(1, 2)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            await stream.send_all(FRAME)

    async def threads() -> int:
        nonlocal looks
        looks += 1
        return looks + len([number for number in threaded if number <= answered])

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        address = ("127.0.0.1", listener.socket.getsockname()[1])
        with ExitStack() as stack:
            clients = [stack.enter_context(Peer(address)) for _ in range(peers)]
            yield Rounds(clients, [FRAME] * peers, check, threads)
        nursery.cancel_scope.cancel()


async def echo_counts(**options: Any) -> Counts:
    async with echo_rounds(**options) as opened:
        return await opened.counts(rounds=10, warm_up=2)


@pytest.mark.parametrize("peers", [1, 3])
async def test_each_call_of_the_server_counts_and_none_of_the_clients(peers: int) -> None:
    def decode(_: bytes) -> None:
        for _ in range(50):
            add(1, 2)

    bare = (await echo_counts(peers=peers)).calls
    assert (await echo_counts(peers=peers, calls=20)).calls == pytest.approx(bare + 20, abs=STRAY)
    assert (await echo_counts(peers=peers, check=decode)).calls == pytest.approx(bare, abs=STRAY)


async def test_calls_are_told_by_function_without_those_of_waiting() -> None:
    async with echo_rounds(calls=7, peers=2) as opened:
        calls = await opened.functions(rounds=10, warm_up=2)
    assert calls["add (counting/test_rounds.py)"] == 7
    assert not any("wait_all_tasks_blocked" in name for name in calls)
    assert list(calls.values()) == sorted(calls.values(), reverse=True)


async def test_each_turn_of_the_loop_counts_and_requests_that_wait_together_share_them() -> None:
    bare = await echo_counts()
    assert bare.turns == round(bare.turns)
    assert (await echo_counts(turns=3)).turns == bare.turns + 3
    bare = await echo_counts()
    assert (await echo_counts(peers=4)).turns == bare.turns / 4


async def test_rounds_in_which_threads_work_are_taken_again() -> None:
    bare = await echo_counts()
    assert (await echo_counts(threaded=range(1, 10))).calls == pytest.approx(bare.calls, abs=STRAY)


async def test_every_answer_is_looked_at_and_nothing_is_left_switched_on() -> None:
    before = sys.getprofile()
    await echo_counts()
    assert sys.getprofile() is before
    seen: list[bytes] = []
    await echo_counts(check=seen.append)
    assert set(seen) == {b"abc"}
    assert len(seen) == 1 + 2 + 2 * 10


async def test_an_answer_may_come_in_pieces_and_an_end_is_an_error() -> None:
    theirs = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with Peer(("127.0.0.1", theirs[0].socket.getsockname()[1])) as peer:
        stream = await theirs[0].accept()
        await stream.send_all(FRAME[:2])
        assert peer.take() is None
        await stream.send_all(FRAME[2:5])
        assert peer.take() is None
        await stream.send_all(FRAME[5:])
        assert peer.take() == b"abc"
        await stream.aclose()
        with pytest.raises(LoadFailedError, match="the server ended a connection"):
            peer.take()
    await theirs[0].aclose()


def answer_of(key: ApiKey, body: object, version: int) -> bytes:
    return bytes(5) + b"".join(codec.write(body, version, flexible=True))


def test_an_error_anywhere_in_an_answer_is_no_load() -> None:
    assert read_kafka_answer(ApiKey.HEARTBEAT, answer_of(ApiKey.HEARTBEAT, HeartbeatResponse(), 4)) == HeartbeatResponse()
    part = OffsetPartitionError(partition_index=0, error_code=25)
    topic = OffsetCommitResponseTopic(name="", topic_id=bytes(16), partitions=[part])
    with pytest.raises(LoadFailedError, match="error_code=25"):
        read_kafka_answer(ApiKey.OFFSET_COMMIT, answer_of(ApiKey.OFFSET_COMMIT, OffsetCommitResponse(topics=[topic]), 10))
