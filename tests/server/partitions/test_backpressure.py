"""The mailbox: limits on commands and bytes, order, closing, and senders that give up."""

from __future__ import annotations

from collections import deque
from math import inf

import attrs
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.server.partitions.backpressure import FILE_BLOCK_BYTES, Mailbox, MailboxClosedError, Room, Rooms

settled = trio.testing.wait_all_tasks_blocked


async def test_take_stops_before_its_byte_limit_but_takes_one_of_any_size() -> None:
    mailbox: Mailbox[str] = Mailbox()
    for item, size in (("a", 50), ("b", 4), ("c", 6), ("d", 1)):
        await mailbox.put(item, size)
    assert await mailbox.take(100, 10) == ["a"]
    assert await mailbox.take(100, 10) == ["b", "c"]
    assert await mailbox.take(100, 10) == ["d"]


async def test_a_sender_cancelled_after_it_was_let_in_is_in() -> None:
    mailbox: Mailbox[str] = Mailbox(max_commands=1)
    await mailbox.put("in", 0)
    late = trio.CancelScope()
    ended: list[str] = []

    async def sender() -> None:
        with late:
            await mailbox.put("let in", 0)
            ended.append("put returned")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender)
        await settled()
        assert await mailbox.take(10, 10) == ["in"]
        late.cancel()
    assert ended == ["put returned"]
    assert await mailbox.take(10, 10) == ["let in"]


async def test_closing_refuses_waiting_and_later_senders_and_leaves_what_is_in() -> None:
    mailbox: Mailbox[str] = Mailbox(max_commands=2)
    await mailbox.put("a", 0)
    await mailbox.put("b", 0)
    refused: list[str] = []

    async def sender(item: str) -> None:
        try:
            await mailbox.put(item, 0)
        except MailboxClosedError:
            refused.append(item)

    async with trio.open_nursery() as nursery:
        for item in ("c", "d"):
            nursery.start_soon(sender, item)
            await settled()
        mailbox.close()
        assert await mailbox.take(1, 100) == ["a"]
        mailbox.close()
    assert sorted(refused) == ["c", "d"]
    with pytest.raises(MailboxClosedError):
        mailbox.try_put("e", 0)
    with pytest.raises(MailboxClosedError):
        await mailbox.put("e", 0)
    assert await mailbox.take(10, 100) == ["b"]
    assert await mailbox.take(10, 100) == []
    assert await mailbox.take(10, 100) == []


@pytest.mark.parametrize("closes", [False, True])
async def test_a_put_or_a_close_wakes_the_owner_who_waits(closes: bool) -> None:
    mailbox: Mailbox[str] = Mailbox()
    taken: list[list[str]] = []

    async def owner() -> None:
        taken.append(await mailbox.take(1, 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(owner)
        await settled()
        mailbox.close() if closes else mailbox.try_put("item", 5)
    assert taken == [[] if closes else ["item"]]


MAX_COMMANDS, MAX_BYTES = 3, 10

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 14)),
        st.tuples(st.just("try"), st.integers(0, 14)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("take"), st.integers(1, 4)),
    ),
    max_size=40,
)


@attrs.define(eq=False)
class Model:
    """What the mailbox is: one queue, whose head is in as far as the limits allow and whose rest waits outside."""

    inside: deque[tuple[int, int]] = attrs.field(factory=deque)
    outside: deque[tuple[int, int]] = attrs.field(factory=deque)

    def settle(self) -> None:
        while self.outside and self.has_room(self.outside[0][1]):
            self.inside.append(self.outside.popleft())

    def has_room(self, size: int) -> bool:
        filled = sum(each for _, each in self.inside)
        return not self.inside or (len(self.inside) < MAX_COMMANDS and filled + size <= MAX_BYTES)

    def take(self, most: int) -> list[int]:
        taken = [self.inside.popleft()[0] for _ in range(min(most, len(self.inside)))]
        self.settle()
        return taken


@given(STEPS)
@example([("put", 8), ("put", 9), ("put", 1), ("cancel", 0)])
@example([("put", 8), ("put", 9), ("put", 1), ("try", 1), ("take", 1), ("try", 5)])
@example([("try", 14), ("try", 1), ("take", 1), ("try", 6), ("try", 5), ("try", 4), ("try", 0), ("try", 0)])
def test_any_history_is_one_queue(steps: list[Step]) -> None:
    trio.run(_play, steps)


async def _play(steps: list[Step]) -> None:
    mailbox: Mailbox[int] = Mailbox(max_commands=MAX_COMMANDS, max_bytes=MAX_BYTES)
    model = Model()
    scopes: dict[int, trio.CancelScope] = {}

    async def sender(item: int, size: int) -> None:
        with scopes[item]:
            await mailbox.put(item, size)

    async with trio.open_nursery() as nursery:
        for number, (kind, value) in enumerate(steps):
            if kind == "put":
                scopes[number] = trio.CancelScope()
                nursery.start_soon(sender, number, value)
                model.outside.append((number, value))
                model.settle()
            elif kind == "try":
                fits = not model.outside and model.has_room(value)
                assert mailbox.try_put(number, value) is fits, "nobody overtakes a sender that waits"
                if fits:
                    model.inside.append((number, value))
            elif kind == "cancel" and model.outside:
                item = model.outside[value % len(model.outside)]
                model.outside.remove(item)
                scopes[item[0]].cancel()
                model.settle()
            elif kind == "take" and model.inside:
                assert await mailbox.take(value, 10**6) == model.take(value)
            await settled()
            assert len(mailbox) == len(model.inside)
            assert mailbox._bytes == sum(size for _, size in model.inside)
        nursery.cancel_scope.cancel()


BLOCK = FILE_BLOCK_BYTES


def granted(left: float, *, ask_below: float = -inf, is_exhausted: bool = False) -> tuple[Rooms, Room]:
    rooms = Rooms()
    room = rooms.of("/data")
    grant(room, left, ask_below=ask_below, is_exhausted=is_exhausted)
    return rooms, room


def grant(room: Room, left: float, *, ask_below: float = -inf, is_exhausted: bool = False) -> None:
    room.begin_look()
    room.grant(left, ask_below=ask_below, is_exhausted=is_exhausted)


async def is_asked(rooms: Rooms) -> bool:
    """Whether a look is asked for, of which nobody knew."""
    asked: list[None] = []

    async def wait() -> None:
        await rooms.asked()
        asked.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return bool(asked)


async def test_what_is_taken_is_not_there_any_more_before_it_is_written() -> None:
    _, room = granted(10 * BLOCK)
    assert room.has(9 * BLOCK)
    assert not room.has(9 * BLOCK + 1), "a write may need one block more than it has bytes"
    room.take(4 * BLOCK)
    assert room.has(4 * BLOCK)
    assert not room.has(4 * BLOCK + 1)
    room.done(4 * BLOCK)
    assert not room.has(4 * BLOCK + 1), "it is in the files now"


async def test_what_is_taken_while_somebody_looks_is_no_part_of_the_grant() -> None:
    _, room = granted(20 * BLOCK)
    room.take(BLOCK)
    room.begin_look()
    room.take(2 * BLOCK)
    room.grant(20 * BLOCK, ask_below=-inf, is_exhausted=False)
    assert room.left_bytes == (20 - 2 - 3) * BLOCK, "nor what was on its way before: the files may not have it yet"
    room.done(BLOCK)
    room.done(2 * BLOCK)
    grant(room, 20 * BLOCK)
    assert room.left_bytes == 20 * BLOCK


async def test_a_look_is_asked_for_once_below_the_mark() -> None:
    rooms, room = granted(10 * BLOCK, ask_below=6 * BLOCK)
    room.take(2 * BLOCK)
    assert not await is_asked(rooms)
    room.take(BLOCK)
    assert await is_asked(rooms)
    room.take(BLOCK)
    assert not await is_asked(rooms), "until there was one"


@pytest.mark.parametrize("is_exhausted", [False, True])
async def test_who_waits_goes_on_when_there_is_room_or_none_can_be_made(is_exhausted: bool) -> None:
    rooms, room = granted(0)
    outcomes: list[bool] = []

    async def wait() -> None:
        outcomes.append(await room.wait_for(BLOCK))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert await is_asked(rooms)
        assert room.wanted_bytes == 2 * BLOCK
        grant(room, 0 if is_exhausted else 2 * BLOCK, is_exhausted=is_exhausted)
    assert outcomes == [not is_exhausted]
    assert room.wanted_bytes == 0


async def test_a_look_that_began_before_somebody_asked_says_nothing_to_him() -> None:
    rooms, room = granted(0)
    outcomes: list[bool] = []

    async def wait() -> None:
        outcomes.append(await room.wait_for(BLOCK))

    async with trio.open_nursery() as nursery:
        room.begin_look()
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        room.grant(0, ask_below=-inf, is_exhausted=True)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == []
        assert await is_asked(rooms)
        grant(room, 2 * BLOCK)
    assert outcomes == [True]


async def test_who_comes_second_asks_again() -> None:
    rooms, room = granted(0)
    served: list[int] = []

    async def append(size: int) -> None:
        assert await room.wait_for(size)
        room.take(size)
        served.append(size)
        room.done(size)

    async with trio.open_nursery() as nursery:
        for size in (BLOCK, 2 * BLOCK):
            nursery.start_soon(append, size)
        await trio.testing.wait_all_tasks_blocked()
        assert room.wanted_bytes == 5 * BLOCK
        grant(room, 3 * BLOCK)
        await trio.testing.wait_all_tasks_blocked()
        assert len(served) == 1
        assert await is_asked(rooms)
        grant(room, 3 * BLOCK)
    assert sorted(served) == [BLOCK, 2 * BLOCK]


async def test_when_nobody_looks_any_more_everybody_goes_on() -> None:
    rooms, room = granted(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.wait_for, BLOCK)
        await trio.testing.wait_all_tasks_blocked()
        rooms.open_others({"/data"})
        await trio.testing.wait_all_tasks_blocked()
        assert not room.has(BLOCK)
        rooms.open_others(set())
    for unguarded in (room, Rooms().of("/data")):
        assert unguarded.has(1 << 60)
        assert await unguarded.wait_for(1 << 60)
