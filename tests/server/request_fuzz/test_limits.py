"""No request of the fuzz takes long in one go, and many of them leave no more memory behind than few. What a request may cost:
lines of Python in one turn of the event loop, one request after the other, and memory, of many."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import attrs
import msgpack
import pytest
import trio
import trio.testing
from triolog.protocol.limits import MAX_FRAME_BYTES, MIB
from triolog.protocol.schema import codec, fields, reader, source, writer

from tests.server.request_fuzz import kafka_requests, native_requests
from tests.server.request_fuzz.run import PATIENCE_S, VARIANTS, WAIT_S, Fuzzed, NativeStream, fuzzed_broker, send, speaking
from tests.server.request_fuzz.test_whole_requests import SEED
from tests.server.request_fuzz.world import World
from tests.support.counts import counts
from tests.support.kafka_stream import KafkaStream, decode_answer
from tests.support.turns import MOST_LINES, Turns, longest_turn

pytestmark = pytest.mark.merge  # every line of Python is counted

TRACED: Final = counts(3000, commit=200)
MEASURED: Final = counts(5000)
KEPT_BYTES: Final = MIB
"""Topics and groups that are new."""
KEPT_PER_REQUEST: Final = 200
"""Segments and producers; a session, or the least of what belongs to one, has some thousand."""
PEAK_BYTES: Final = 48 * MIB
"""While four clients ask at a time."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_no_request_keeps_others_waiting_for_long(fast_path: Path, variant: str) -> None:
    async with fuzzed_broker(fast_path, **VARIANTS[variant]()) as fuzzed:
        longest = await longest_turns(fuzzed, TRACED, SEED)
    assert not (found := too_long(longest)), "\n".join(found)
    assert len(longest) > 50, "few APIs were asked for anything"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_requests_leave_no_memory_behind_and_take_little(fast_path: Path, variant: str) -> None:
    async with fuzzed_broker(fast_path, **VARIANTS[variant]()) as fuzzed:
        memory = await memory_of(fuzzed, MEASURED, SEED)
    assert memory.kept_bytes <= KEPT_BYTES + KEPT_PER_REQUEST * MEASURED, memory.where
    assert memory.peak_bytes <= PEAK_BYTES, memory


MANY: Final = 0.05
"""More often than elsewhere: what names a thousand things is what takes long."""
READ_OR_WRITTEN: Final = 70
"""Lines for each element of a request, which is read in one go, as its answer is made and written: 2 ms and as much are not
enough where there are thousands. `listeners/kafka/test_cost.py` bounds the work for each in other units."""
LINES_PER_ELEMENT: Final = {
    "AddPartitionsToTxn": 120,  # all partitions or none: they are looked for where nobody else has a turn
    "OffsetCommit": 150,  # one batch for the group's log, made and checked in one go
    "TxnOffsetCommit": 150,
    "native commit_offsets": 150,
}
"""Of what is known to take longer."""
MADE_ONCE: Final = (*(str(module.__file__) for module in (codec, fields, reader, source, writer)), tracemalloc.__file__)
"""Where readers and writers of messages are made, when they are first needed."""
CLIENTS: Final = "*/tests/*"
"""What they send and receive is not the server's."""
SHOWN: Final = 300
"""Characters of a request that takes too long."""


class Turn(NamedTuple):
    """The longest one of a request."""

    lines: int
    most: int
    """Lines that a request of so many elements may take."""
    task: str
    request: Any

    @property
    def above(self) -> int:
        return self.lines - self.most

    def __str__(self) -> str:
        return f"{self.lines} lines in a turn of {self.task}, at most {self.most} wanted, asked for {str(self.request)[:SHOWN]}"


@attrs.define(eq=False)
class Asking:
    """One client, which is the test's own task, so that every other turn is the server's."""

    fuzzed: Fuzzed
    world: World
    longest: dict[str, Turn] = attrs.field(factory=dict)
    """By API, that which is furthest above what it may take, or closest to it."""
    number: int = 0

    async def kafka(self, requests: int) -> None:
        """Over one connection after the other."""
        last = self.number + requests
        while self.number < last:
            async with speaking(self.fuzzed, self.world.one_of(self.fuzzed.users)) as client:
                while self.number < last and await self._ask_kafka(client):
                    """The next one."""
            await self.fuzzed.at_rest()

    async def _ask_kafka(self, client: KafkaStream) -> bool:
        """False: the connection has ended, or the client has lost its patience."""
        self.world.begin()
        self.number += 1
        sent = kafka_requests.draw(self.world, self.number)
        answer, is_open = None, True
        with longest_turn() as turns, trio.move_on_after(WAIT_S if sent.may_wait else PATIENCE_S) as waiting:
            try:
                await client.send_raw(sent.data)
                if sent.asked is not None:
                    answer = await client.receive_frame()
            except (EOFError, trio.BrokenResourceError):
                is_open = False
            await self._finish()
        self._note(sent.name, turns, sent.body)
        if answer is not None and sent.asked is not None:
            kafka_requests.learn(self.world, sent, decode_answer(sent.asked, answer))
        return is_open and not waiting.cancelled_caught

    async def native(self, requests: int) -> None:
        """The same for the native protocol."""
        for _ in range(requests):
            client = NativeStream(await trio.open_tcp_stream(*self.fuzzed.native_address))
            async with client.stream:
                await client.call(1, "hello", 1, {"client_id": "fuzz"})
                self.world.begin()
                api, version, body = native_requests.draw(self.world)
                with longest_turn() as turns:
                    try:
                        await (client.send if body.get("acks") == 0 else client.call)(2, api, version, body)
                    except (EOFError, trio.BrokenResourceError) as exc:
                        # Drawn lists of long names can exceed a frame, which ends the connection.
                        if len(msgpack.packb([2, api, version, body])) <= MAX_FRAME_BYTES:
                            raise AssertionError(f"{self.fuzzed.log.why_ended()}: {api} {str(body)[:SHOWN]}") from exc
                    await self._finish()
                self._note(f"native {api}", turns, body)
            await self.fuzzed.at_rest()

    async def _finish(self) -> None:
        """What was begun for a request goes on, also for one that has no answer, and is not laid to the next."""
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()

    def _note(self, api: str, turns: Turns, request: Any) -> None:
        most = MOST_LINES + elements(request) * LINES_PER_ELEMENT.get(api, READ_OR_WRITTEN)
        turn = Turn(turns.longest, most, turns.of, request)
        if api not in self.longest or self.longest[api].above < turn.above:
            self.longest[api] = turn


async def longest_turns(fuzzed: Fuzzed, requests: int, seed: int) -> dict[str, Turn]:
    """The longest turn of each API, of so many requests."""
    asking = Asking(fuzzed, World(Random(f"turns {seed}"), fuzzed.topic_ids, many=MANY))
    while asking.number < requests:
        await asking.kafka(min(100, requests))
        await asking.native(20)
        await fuzzed.furnish()
    return asking.longest


class Memory(NamedTuple):
    """Of Python's objects and buffers, while and after requests were sent."""

    kept_bytes: int
    peak_bytes: int
    """Above what was there before."""
    where: str


async def memory_of(fuzzed: Fuzzed, requests: int, seed: int) -> Memory:
    """What requests take after as many others have taken theirs, which nobody traces: that takes most of the time.

    What other tests have left in the process is frozen meanwhile: the collector waits until its objects grow by a quarter, so
    beside many of them the garbage of requests would pile up.
    """
    await send(fuzzed, requests, f"warm {seed}")
    await fuzzed.at_rest()
    _forget(fuzzed)
    gc.collect()
    gc.freeze()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        first = _snapshot()
        tracemalloc.reset_peak()
        await send(fuzzed, requests, f"counted {seed}")
        await fuzzed.at_rest()
        _, peak = tracemalloc.get_traced_memory()
        _forget(fuzzed)
        gc.collect()
        changes = _snapshot().compare_to(first, "lineno")
        return Memory(sum(each.size_diff for each in changes), peak - before, "\n".join(map(str, changes[:10])))
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def _snapshot() -> tracemalloc.Snapshot:
    return tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, name) for name in (*MADE_ONCE, CLIENTS)])


def _forget(fuzzed: Fuzzed) -> None:
    """What only the test keeps, and the log of requests, which is bounded and full of what nobody traced."""
    fuzzed.log.lines.clear()
    fuzzed.log.ends.clear()
    if fuzzed.noted is not None:
        fuzzed.noted.clear()


def elements(value: Any) -> int:
    """Of all arrays in a request, however deep."""
    if isinstance(value, list | tuple):
        return len(value) + sum(map(elements, value))
    if isinstance(value, dict):
        return sum(map(elements, value.values()))
    if attrs.has(type(value)):
        return sum(elements(getattr(value, field.name)) for field in attrs.fields(type(value)))
    return 0


def too_long(longest: dict[str, Turn]) -> list[str]:
    """Turns that are longer than what was asked for may take."""
    return [f"{api}: {turn}" for api, turn in longest.items() if turn.above > 0]
