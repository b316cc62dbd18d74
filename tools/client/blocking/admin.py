"""Topics, offsets and groups without trio: the functions of `Admin`, run to their end over a client that waits in place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..admin import Admin
from ..procedures.topics import Procedure
from .client import BlockingClient

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(function: Callable[Concatenate[Admin, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    def call(self: BlockingAdmin, /, *arguments: P.args, **options: P.kwargs) -> T:
        try:
            function(self._admin, *arguments, **options).send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        raise AssertionError(f"{function.__name__} waits for something else than a call")

    return functools.update_wrapper(call, function)


class _Caller:
    """A client whose calls have returned when they are awaited."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    async def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)


class BlockingAdmin:
    """Calls on topics and groups: the methods of `Admin`, which return what those return when they are awaited. Every one
    raises the first error among the answers."""

    def __init__(self, client: BlockingClient) -> None:
        self._admin = Admin(_Caller(client))

    create_topic = _blocking(Admin.create_topic)
    create_topics = _blocking(Admin.create_topics)
    delete_topics = _blocking(Admin.delete_topics)
    list_topics = _blocking(Admin.list_topics)
    describe_topic = _blocking(Admin.describe_topic)
    describe_config = _blocking(Admin.describe_config)
    create_partitions = _blocking(Admin.create_partitions)
    alter_config = _blocking(Admin.alter_config)
    delete_records = _blocking(Admin.delete_records)
    list_gaps = _blocking(Admin.list_gaps)
    accept_gap = _blocking(Admin.accept_gap)
    describe_segments = _blocking(Admin.describe_segments)
    list_groups = _blocking(Admin.list_groups)
    describe_groups = _blocking(Admin.describe_groups)
    group_offsets = _blocking(Admin.group_offsets)
    commit_group_offsets = _blocking(Admin.commit_group_offsets)
    alter_share_group_offsets = _blocking(Admin.alter_share_group_offsets)
    delete_groups = _blocking(Admin.delete_groups)
    list_transactions = _blocking(Admin.list_transactions)
    describe_transactions = _blocking(Admin.describe_transactions)
    describe_producers = _blocking(Admin.describe_producers)
    abort_transaction = _blocking(Admin.abort_transaction)
    abort_hanging_transaction = _blocking(Admin.abort_hanging_transaction)
    describe_quotas = _blocking(Admin.describe_quotas)
    alter_quotas = _blocking(Admin.alter_quotas)
    check_may_change = _blocking(Admin.check_may_change)
    offsets = _blocking(Admin.offsets)
    offsets_for_times = _blocking(Admin.offsets_for_times)
    explain = _blocking(Admin.explain)
    list_connections = _blocking(Admin.list_connections)
    statistics = _blocking(Admin.statistics)
    stage = _blocking(Admin.stage)
    commit_stage = _blocking(Admin.commit_stage)
    abort_stage = _blocking(Admin.abort_stage)
    last_commit = _blocking(Admin.last_commit)
    split_points = _blocking(Admin.split_points)
    lease_segments = _blocking(Admin.lease_segments)
