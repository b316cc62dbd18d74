"""A misspelt name is an error that has the right one, or part of the error of a wait. It is never an empty answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode, RequestError, UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY, BlockingBroker, open_broker
from triolog.server.fake.faults.rules import RuleError

T, G = "orders", "baristas"
SHORT_S = 0.02


async def asked(call: Callable[[], Any]) -> Any:
    """What a call answers, at once or awaited."""
    found = call()
    return await found if inspect.isawaitable(found) else found


async def test_a_misspelt_group_has_no_lag_but_an_error() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await broker.append(T, [b"a"])
        await broker.groups.commit(G, {TopicPartition(T, 0): 1})
        for call in (broker.groups.lag("barista"), broker.groups.lag("barista", T), broker.groups.lag("Baristas")):
            with pytest.raises(RequestError, match=r"there is no group .* \(did you mean 'baristas'") as caught:
                await call
            assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(RequestError, match="there is no share group 'baristas'"):
            broker.share_groups.lag(G)
        for wait in (
            broker.groups.wait_no_lag("barista", T, timeout_s=SHORT_S),
            broker.groups.wait_committed("barista", T, 1, timeout_s=SHORT_S),
            broker.groups.wait_assigned("barista", timeout_s=SHORT_S),
        ):
            with pytest.raises(TimeoutError, match=r"there is no group 'barista' \(did you mean 'baristas'"):
                await wait
        assert broker.groups.is_known(G)
        assert not broker.groups.is_known("barista")


async def test_a_misspelt_topic_is_named_with_the_right_one() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await broker.groups.commit(G, {TopicPartition(T, 0): 0})
        groups, shares, log = broker.groups, broker.share_groups, broker.log("order")
        for call in (
            lambda: groups.lag(G, "order"),
            lambda: groups.committed(G, "order"),
            lambda: groups.wait_no_lag(G, "order"),
            lambda: shares.partitions(G, "order"),
            lambda: shares.wait_done(G, "order"),
            lambda: shares.delivery_counts(G, "order"),
            log.records,
            log.end_offsets,
            lambda: log.wait_for(1),
        ):
            with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic 'order' \(did you mean 'orders'"):
                await asked(call)
        with pytest.raises(TimeoutError, match=r"no topic 'order' \(did you mean 'orders'"):
            await groups.wait_committed(G, "order", 1, timeout_s=SHORT_S)


async def test_misspelt_apis_errors_and_states_are_refused() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        requests = broker.requests
        for call in (requests.count, requests.find):
            with pytest.raises(ValueError, match=r"no API 'Prodduce' \(did you mean 'Produce'"):
                call("Prodduce")
            with pytest.raises(ValueError, match=r"no error 'NOT_LEADER_OR_FOLOWER' \(did you mean 'NOT_LEADER_OR_FOLLOWER'"):
                call("Produce", error="NOT_LEADER_OR_FOLOWER")
        with pytest.raises(ValueError, match="did you mean 'Produce'"):
            await requests.wait_for("Prodduce")
        assert requests.count("PRODUCE") == requests.count("list-offsets") == 0
        with pytest.raises(RuleError, match="did you mean 'produce'"):
            broker.faults.add("Prodduce", hold=True)
        with pytest.raises(RuleError, match="did you mean 'NOT_LEADER_OR_FOLLOWER'"):
            broker.faults.add("Produce", error="NOT_LEADER_OR_FOLOWER")
        with pytest.raises(ValueError, match=r"no state 'availabel' \(did you mean 'available'"):
            broker.share_groups.in_state(G, T, "availabel")


@pytest.mark.parametrize("given", [{"topics": "orders"}, {"records": {"orders": "abc"}}, {"records": {"orders": b"abc"}}])
def test_one_text_in_place_of_a_list_is_refused_before_the_broker_starts(given: Any) -> None:
    with pytest.raises(TypeError, match="expected a list"):
        BlockingBroker(MEMORY, native=None, **given).start()
