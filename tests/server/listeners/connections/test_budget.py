"""Accounts of memory: who is charged what, who waits, and that nobody waits for ever. What runs for a request counts, what it
waits for does not; whoever waits is told the same as without a meter. What connections count: requests, errors, bytes, and
what the counting itself costs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import KIB, MIB
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.connections import counters as module
from triolog.server.listeners.connections.budget import FREE_BYTES, PROGRESS_BYTES, SMALL_BYTES, STALL_S, InFlightBudget, Share
from triolog.server.listeners.connections.counters import Meter, ProtocolCounters
from triolog.server.listeners.native.session import UNKNOWN_API, error_codes
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect

from tests.support.attackers import both_listeners
from tests.support.brokers import PARTITION, TOPIC, until
from tests.support.counts import seeds

LIMIT = 16 * MIB


@attrs.define(eq=False)
class Peer:
    """A session as its share sees it: requests that are taken, and a frame that is not whole."""

    share: Share
    unread: int = 0
    taken: int = 0
    ended: list[str] = attrs.field(factory=list)

    @classmethod
    def of(cls, budget: InFlightBudget, principal: str = "User:a") -> Peer:
        peer = cls(budget.open_share())
        peer.share.payer = lambda: principal
        peer.share.unread_bytes = lambda: peer.unread
        peer.share.give_up = peer._given_up
        return peer

    def _given_up(self, why: str) -> None:
        self.ended.append(why)
        self.share.close()

    async def receive(self, size: int) -> None:
        """Some bytes of a frame have come."""
        self.share.is_receiving = False
        self.unread += size
        self.share.held += size
        if self.share.held > FREE_BYTES and not self.share.try_charge():  # as the sessions do
            await self.share.charge()
        self.share.is_receiving = True

    def take(self) -> int:
        """The frame is whole. Answers how much it is."""
        size = self.unread
        self.taken, self.unread = self.taken + size, 0
        self.share.is_whole = True
        self.share.is_receiving = False
        return size

    def answer(self, size: int | None = None) -> None:
        """All that was taken is answered, or so much of it."""
        size = self.taken if size is None else size
        self.taken -= size
        self.share.held -= size
        if self.share.accounts:
            self.share.give_back()


async def waits(deed: Callable[..., object], *arguments: object, nursery: trio.Nursery) -> Callable[[], bool]:
    """Begin something; answers a function that tells whether it still waits."""
    done = False

    async def run() -> None:
        nonlocal done
        await deed(*arguments)  # type: ignore[misc]
        done = True

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    return lambda: not done


async def test_the_first_bytes_of_a_connection_are_counted_and_not_charged() -> None:
    budget = InFlightBudget(1)
    peers = [Peer.of(budget) for _ in range(100)]
    for peer in peers:
        await peer.receive(FREE_BYTES)
    assert (budget.held, budget.used) == (100 * FREE_BYTES, 0)


async def test_what_is_charged_returns_with_the_answer_and_with_the_connection() -> None:
    budget = InFlightBudget(LIMIT)
    peer, other = Peer.of(budget), Peer.of(budget)
    await peer.receive(FREE_BYTES + 1000)
    await other.receive(FREE_BYTES + 500)
    assert budget.used == 1500
    peer.take()
    peer.answer()
    assert budget.used == 500
    other.share.close()
    assert (budget.used, budget.held, len(budget.shares)) == (0, 0, 1)
    assert budget._principals == {}


async def test_one_principal_has_half_and_another_one_is_served_beside_it(autojump_clock: trio.testing.MockClock) -> None:
    budget = InFlightBudget(LIMIT)
    greedy = [Peer.of(budget, "User:greedy") for _ in range(20)]
    honest = Peer.of(budget, "User:honest")
    async with trio.open_nursery() as nursery:
        states = [await waits(peer.receive, MIB, nursery=nursery) for peer in greedy]
        assert any(waits_still() for waits_still in states)
        assert budget.used <= LIMIT // 2 + MIB, "and the one frame that goes on outside"
        with trio.fail_after(STALL_S / 2):
            await honest.receive(2 * MIB)
        nursery.cancel_scope.cancel()


async def test_one_connection_has_a_quarter_while_requests_of_it_are_under_way() -> None:
    budget = InFlightBudget(LIMIT)
    peer = Peer.of(budget)
    async with trio.open_nursery() as nursery:
        await peer.receive(LIMIT // 4)
        peer.take()
        state = await waits(peer.receive, 1, nursery=nursery)
        assert state()
        peer.answer()
        await trio.testing.wait_all_tasks_blocked()
        assert not state()


async def test_who_holds_little_does_not_wait_for_who_holds_much(autojump_clock: trio.testing.MockClock) -> None:
    """The last quarter of an account is for small frames."""
    budget = InFlightBudget(LIMIT)
    large = [Peer.of(budget, f"User:{number}") for number in range(8)]
    small = Peer.of(budget, "User:small")
    async with trio.open_nursery() as nursery:
        for peer in large:
            await waits(peer.receive, 3 * MIB, nursery=nursery)
        assert budget.is_waited_for
        with trio.fail_after(STALL_S / 2):
            await small.receive(SMALL_BYTES)
        nursery.cancel_scope.cancel()


async def test_the_one_that_goes_on_outside_goes_on_for_one_frame(autojump_clock: trio.testing.MockClock) -> None:
    budget = InFlightBudget(16 * FREE_BYTES)
    full, first, second = Peer.of(budget), Peer.of(budget), Peer.of(budget)
    await full.receive(9 * FREE_BYTES)
    full.take()
    async with trio.open_nursery() as nursery:
        await first.receive(2 * FREE_BYTES)
        state = await waits(second.receive, 2 * FREE_BYTES, nursery=nursery)
        await first.receive(FREE_BYTES)
        assert state(), "one at a time"
        first.take()
        again = await waits(first.receive, FREE_BYTES // 2, nursery=nursery)
        assert again(), "its next frame waits as everybody's"
        first.answer()
        await trio.testing.wait_all_tasks_blocked()
        assert not state()
        nursery.cancel_scope.cancel()


async def test_a_frame_that_stands_still_is_given_up_only_when_others_wait(autojump_clock: trio.testing.MockClock) -> None:
    budget = InFlightBudget(2)
    still, other = Peer.of(budget), Peer.of(budget)
    await still.receive(2 * FREE_BYTES)
    await trio.sleep(100 * STALL_S)
    assert still.ended == []
    await other.receive(2 * FREE_BYTES)
    assert len(still.ended) == 1
    assert "stood still" in still.ended[0]


async def test_a_frame_that_makes_progress_is_not_given_up(autojump_clock: trio.testing.MockClock) -> None:
    budget = InFlightBudget(2)
    slow, other = Peer.of(budget), Peer.of(budget)
    await slow.receive(2 * FREE_BYTES)
    async with trio.open_nursery() as nursery:
        state = await waits(other.receive, 2 * FREE_BYTES, nursery=nursery)
        for _ in range(10):
            await trio.sleep(STALL_S * 0.7)
            await slow.receive(PROGRESS_BYTES)
        assert (slow.ended, state()) == ([], True)
        slow.take()
        slow.answer()
        await trio.testing.wait_all_tasks_blocked()
        assert not state()


@pytest.mark.parametrize("seed", seeds(200))
async def test_random_peers_get_their_answers_and_accounts_balance(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    """Frames of all sizes, answers that take their time while more comes, peers that leave in the middle."""
    rng = random.Random(seed)
    budget = InFlightBudget(rng.choice([1, 100 * KIB, MIB, LIMIT]))
    pieces = [10, 50 * KIB, 300 * KIB]
    frame = 5 * max(pieces)
    answered = 0
    peers = [Peer.of(budget, f"User:{number % 3}") for number in range(20)]

    async def answer(peer: Peer, size: int) -> None:
        nonlocal answered
        await trio.sleep(rng.random() * 0.3)
        peer.answer(size)
        answered += 1

    async def live(peer: Peer) -> None:
        async with trio.open_nursery() as answering:
            for _ in range(rng.randint(1, 4)):
                for _ in range(rng.randint(1, 5)):
                    await peer.receive(rng.choice(pieces))
                    await trio.sleep(rng.random() * 0.1)
                    charged = sum(share.charged for share in budget.shares)
                    assert budget.used == charged
                    # outside: one frame, and of each connection what it had received before it was told to wait
                    assert budget.used <= budget.limit + frame + len(peers) * max(pieces)
                if rng.random() < 0.1:
                    break
                answering.start_soon(answer, peer, peer.take())
        peer.share.close()

    with trio.fail_after(3600):
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(live, peer)
    assert answered > 0
    assert [peer.ended for peer in peers if peer.ended] == []
    assert (budget.used, budget.held, budget.shares, budget._principals) == (0, 0, {}, {})


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The processor's clock, which a test moves."""
    now = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    return now


def test_only_the_time_between_go_and_pause_counts(ticks: list[float]) -> None:
    meter = Meter()
    for runs, waits in [(1.0, 100.0), (2.0, 100.0)]:
        meter.go()
        ticks[0] += runs
        meter.pause()
        ticks[0] += waits
    assert meter.spent_s == 3.0
    meter.go()
    ticks[0] += 0.5
    assert meter.spent_s == 3.5


async def test_what_is_awaited_does_not_count(ticks: list[float]) -> None:
    woken, meter = trio.Event(), Meter()

    async def work() -> str:
        ticks[0] += 1.0
        await woken.wait()
        ticks[0] += 2.0
        await trio.lowlevel.checkpoint()
        return "done"

    found: list[str] = []

    async def metered() -> None:
        found.append(await meter.run(work()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(metered)
        await trio.testing.wait_all_tasks_blocked()
        ticks[0] += 1000.0
        woken.set()
    assert (found, meter.spent_s) == (["done"], 3.0)


async def test_a_cancellation_reaches_what_is_metered() -> None:
    cancelled: list[bool] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append(True)
            raise

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Meter().run, work())
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert cancelled == [True]


async def test_an_error_of_what_is_metered_is_its_own(ticks: list[float]) -> None:
    meter = Meter()

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        ticks[0] += 1.0
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await meter.run(work())
    assert meter.spent_s == 1.0


MOST_SECONDS_PER_REQUEST: Final = 10e-6
"""A produce of one record takes about 100 us; on an idle machine the counting takes 0.5."""


async def test_requests_errors_bytes_and_connections_are_counted(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server:
        counters = server.admission.counters("native")
        async with connect(*server.native_address) as client:
            admin = Admin(client)
            await admin.list_groups()
            await admin.list_groups()
            with pytest.raises(Exception, match="no topic"):
                await admin.offsets_for_times({TopicPartition("missing", 0): -1, TopicPartition("gone", 0): -1})
            assert counters.connections == 1
            assert counters.apis["hello"].durations.count == 1
            assert counters.apis["list_groups"].durations.count == 2
            assert counters.apis["list_groups"].errors == {}
            assert counters.apis["offsets_for_times"].errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}
            assert 100 < counters.received_bytes < 2000
            assert 100 < counters.sent_bytes < 5000
            assert 0 < counters.apis["hello"].durations.seconds < 30
        await until(lambda: counters.connections == 0)
        assert (counters.accepted, counters.refused) == (1, 0)


async def test_names_that_no_call_has_share_one_place(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server, server.native_client() as client:
        counters = server.admission.counters("native")
        for number in range(2, 30):
            await client.send_raw(b"".join(client.connection.send_request(number, f"call-{number}", 1, {})))
        await until(lambda: UNKNOWN_API in counters.apis and counters.apis[UNKNOWN_API].durations.count == 28)
        assert set(counters.apis) == {"hello", UNKNOWN_API}
        assert counters.apis[UNKNOWN_API].errors == {ErrorCode.UNSUPPORTED_VERSION: 28}


def test_errors_are_found_in_the_entries_of_an_answer() -> None:
    entries = [{"topic": TOPIC, "error": None}, {"error": [3, "X", ""]}, {"error": [3, "X", ""]}, {"error": [1, "Y", ""]}]
    assert error_codes({"partitions": entries, "apis": {}, "n": 1}) == [3, 1]
    assert error_codes({"groups": ["a", "b"]}) == []
    assert error_codes(None) == []


def test_counting_a_request_costs_next_to_nothing() -> None:
    """What the listeners do for each request and its answer, of one partition: print the cost with -s."""
    counters, count = ProtocolCounters("native"), 20_000
    body = {"partitions": [{"topic": TOPIC, "partition": 0, "error": None, "base_offset": 1}]}
    begin = process_time()
    for _ in range(count):
        counters.received_bytes += 100
        api, started = counters.apis["produce"], perf_counter()
        api.durations.add(perf_counter() - started)
        if errors := error_codes(body):
            api.note_errors(errors)
        counters.sent_bytes += 100
    seconds = (process_time() - begin) / count
    print(f"counting costs {seconds * 1e6:.2f} us a request")  # noqa: T201 - with -s
    assert counters.apis["produce"].durations.count == count
    assert seconds < MOST_SECONDS_PER_REQUEST


async def test_the_call_tells_what_was_counted(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server:
        broker = server.kafka.broker
        await broker.writer.append(PARTITION, [(None, None, b"v", ())])
        await broker.offsets.commit("g", [(PARTITION, 0, None)])
        async with connect(*server.native_address) as client:
            admin = Admin(client)
            await admin.list_groups()
            told = await admin.statistics()
    native = told["protocols"]["native"]
    assert native["connections"] == 1
    assert native["apis"]["list_groups"]["count"] == 1
    assert sum(native["apis"]["list_groups"]["counts"]) == 1
    assert len(native["apis"]["list_groups"]["counts"]) == len(told["duration_bounds_s"]) + 1
    assert {topic["topic"]: topic["records"] for topic in told["topics"]} == {TOPIC: 1, "__consumer_offsets": 1}
    assert told["groups"]["lags"] == [{"group": "g", "topic": TOPIC, "partition": 0, "offset": 0, "lag": 1}]
    assert told["directories"][0]["free_bytes"] > 0
