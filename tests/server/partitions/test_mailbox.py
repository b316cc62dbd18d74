"""The mailbox: limits on commands and bytes, order, closing, and senders that give up."""

from __future__ import annotations

from collections import deque

import attrs
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.server.partitions.mailbox import Mailbox, MailboxClosedError

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
