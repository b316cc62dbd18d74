"""Outages between a mirror and its source, a day of them in the long tier: the mirror has the bytes of the source."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.protocol.records.batch import iter_batches
from triolog.server.broker import Broker
from triolog.server.config.values import Address
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.system.clock import system_now_ms
from triolog.tools.mirror.link import MirrorState

from tests.support.brokers import running_broker, until
from tests.support.counts import counts
from tests.support.flapping_link import FlappingLink
from tests.tools.mirror.test_link import LOOPBACK, ORDERS, Server, all_bytes, end, mirroring

pytestmark = pytest.mark.merge

HOURS: Final = counts(24, merge=1)
RECORDS: Final = 20


@pytest.mark.merge
@pytest.mark.timeout(1800)
async def test_outages_leave_a_mirror_without_gap_or_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.mirror.link.PAUSES_MS", (5, 20))
    with FlappingLink(HOURS, seed=1) as uplink:
        there = Address("127.0.0.1", uplink.port)
        async with (
            running_broker(tmp_path / "a", clock=system_now_ms) as broker,
            running_broker(tmp_path / "b", clock=system_now_ms) as mirror,
            trio.open_nursery() as nursery,
        ):
            addresses = await Listeners(broker).start(nursery, Addresses(None, LOOPBACK, http=None), advertised=there)
            listener = addresses.kafka
            assert listener is not None
            uplink.target = lambda: (listener.host, listener.port)
            await broker.topics.create(ORDERS.topic, 1, {"retention.ms": "-1"})
            source = Server(broker, listener, Listeners(broker))
            async with mirroring(mirror, there) as link:
                written = 0
                while left := uplink.outages_left:
                    written = 1 + await source.append(ORDERS, *(f"{number}" for number in range(RECORDS)))
                    await until(lambda left=left, last=written: uplink.outages_left < left or end(mirror, ORDERS) >= last)
                await broker.offsets.commit("readers", [(ORDERS, written, "note")])
                await until(lambda: end(mirror, ORDERS) == written and link.state is MirrorState.COPYING)
                await until(lambda: bool(mirror.offsets.committed_partitions("readers")))
                assert await whole_log(mirror, written) == await whole_log(broker, written)
                assert await mirror.offsets.fetch("readers") == [(ORDERS, written, "note")]
                assert (link.set_aside, link.troubles) == ([], {})
            nursery.cancel_scope.cancel()
        assert uplink.refused


async def whole_log(broker: Broker, stop: int) -> bytes:
    found, start = b"", 0
    while start < stop:
        some = await all_bytes(broker, ORDERS, start)
        *_, (header, _) = iter_batches(some)
        found, start = found + some, header.next_offset
    return found
