"""Client quotas and the native protocol, which has no word for them: who is above one is answered, and then not read from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.native import messages
from triolog.server.control.clock import MovedClock
from triolog.server.security.quota_entities import QuotaEntity

from tests.support.attackers import both_listeners
from tests.support.kafka_quotas import FETCHED, PERCENT, PRODUCED
from tests.support.kafka_server import TOPIC, batch

PRODUCE: Final = messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, batch("x" * 20_000)),))
FETCH: Final = messages.FetchRequest((messages.FetchPartition(TOPIC, 0, 0),))
METADATA: Final = messages.MetadataRequest()
ANONYMOUS: Final[QuotaEntity] = (("user", "ANONYMOUS"),)
ABOVE: Final = [(PRODUCED, 100.0, PRODUCE), (FETCHED, 100.0, FETCH), (PERCENT, 1e-9, METADATA)]


async def ask(path: Path, clock: MovedClock, quotas: dict[str, float], message: Any, *, is_quiet: bool) -> None:
    """One request, and another one, which is taken up at once unless its client has to be quiet."""
    async with both_listeners(path) as server, server.native_client() as client, server.native_client() as other:
        assert (await client.call(PRODUCE)).error is None
        server.kafka.broker.security.quotas.replace({ANONYMOUS: quotas})
        assert (await client.call(message)).error is None
        server.kafka.broker.security.quotas.replace({})
        taken = server.admission.counters("native").api("list_groups").durations
        question = messages.ListGroupsRequest()
        await client.send(question)
        await other.call(question)  # what the first one has sent lies there for longer
        assert taken.count == (1 if is_quiet else 2)
        clock.advance(400)
        await client.receive()
        assert taken.count == 2


@pytest.mark.parametrize(("key", "bound", "message"), ABOVE, ids=[key for key, _, _ in ABOVE])
def test_who_is_above_a_quota_is_answered_and_then_not_read_from(tmp_path: Path, key: str, bound: float, message: Any) -> None:
    clock = MovedClock()
    trio.run(partial(ask, tmp_path, clock, {key: bound}, message, is_quiet=True), clock=clock)


@pytest.mark.parametrize(("key", "bound", "message"), ABOVE, ids=[key for key, _, _ in ABOVE])
def test_who_is_within_his_quota_is_read_from(tmp_path: Path, key: str, bound: float, message: Any) -> None:
    clock = MovedClock()
    trio.run(partial(ask, tmp_path, clock, {key: bound * 1e12}, message, is_quiet=False), clock=clock)
