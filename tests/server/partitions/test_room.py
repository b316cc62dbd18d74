"""What appends may take between two looks at a device: nobody takes what is not there, and nobody waits for nothing."""

from __future__ import annotations

from math import inf

import pytest
import trio
import trio.testing
from triolog.server.partitions.room import FILE_BLOCK_BYTES, Room, Rooms

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
