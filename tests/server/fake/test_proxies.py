"""What programs without trio call is what trio programs call."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from triolog.server.embedded import BlockingBroker, EmbeddedBroker, aio, records
from triolog.server.fake import proxies
from triolog.server.fake.clock import MovedClock
from triolog.server.fake.views import groups_view, log_view, share_groups_view, streams_groups_view
from triolog.server.fake.views.fault_views import FaultsView, FaultView, RequestsView

PAIRS = (
    (EmbeddedBroker, aio.AioBroker, {"forked_into", "stop", "node_down", "node_up", "move_leader", "move_coordinator"}),
    (log_view.LogView, aio.AioLog, set()),
    (groups_view.GroupsView, aio.AioGroups, {"rebalance", "freeze"}),
    (records.Transaction, aio.AioTransaction, set()),
    (EmbeddedBroker, BlockingBroker, {"forked_into", "stop"}),
    (FaultView, proxies.BlockingFault, set()),
    (FaultsView, proxies.BlockingFaults, {"add_disk_rule"}),
    (RequestsView, proxies.BlockingRequests, set()),
    (log_view.LogView, proxies.BlockingLog, set()),
    (groups_view.GroupsView, proxies.BlockingGroups, set()),
    (share_groups_view.ShareGroupsView, proxies.BlockingShareGroups, {"as_json"}),
    (streams_groups_view.StreamsGroupsView, proxies.BlockingStreamsGroups, {"as_json"}),
    (MovedClock, proxies.BlockingClock, {"reset", "copy", "start_clock", "current_time", "deadline_to_sleep_time"}),
)
"""A class of the trio thread, the one that stands for it, and what only the first one has."""


@pytest.mark.parametrize(("target", "proxy", "inner"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_proxy_has_every_public_method_of_its_target_with_the_same_parameters_and_words(
    target: Any, proxy: Any, inner: set[str]
) -> None:
    methods = {name: each for name, each in vars(target).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert methods
    for name, method in methods.items():
        if name in inner:
            continue
        called = getattr(proxy, name)
        assert proxy.__module__ == aio.__name__ or not inspect.iscoroutinefunction(called), name
        assert parameters(called) == parameters(method), name
        assert inspect.getdoc(called), name


def parameters(method: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


def test_a_proxy_that_outlives_its_broker_says_that_the_broker_does_not_run() -> None:
    with BlockingBroker(topics=["t"]) as broker:
        log, faults = broker.log("t"), broker.faults
    for call in (log.end_offsets, log.values, faults.clear, broker.topics):
        with pytest.raises(RuntimeError, match="does not run"):
            call()
