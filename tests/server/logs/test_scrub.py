"""Scrubbing in a running server: with its process, without touching what it looks at."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
import trio.testing
from triolog.server.broker import Broker
from triolog.server.logs.cleaner_process import open_child_process
from triolog.server.logs.compaction import Scrub

from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker, until
from tests.support.logs import START_MS

SMALL = {"segment.bytes": "2000"}


async def fill(broker: Broker) -> None:
    if TOPIC not in broker.topics.names():
        await broker.topics.create(TOPIC)
    for number in range(60):
        await broker.writer.append(PARTITION, [(START_MS, b"key", b"%060d" % number, ())])
    log = actor_of(broker).log
    assert len(log.segments) >= 3
    await until(lambda: log.recovery_point >= log.active.base_offset)


async def test_damage_in_a_closed_segment_is_said_once_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, topic=SMALL) as broker:
        await fill(broker)
        path = actor_of(broker).log.segments.first.log.path
        data = bytearray(Path(path).read_bytes())
        data[200] ^= 1
        Path(path).write_bytes(data)
        scrub = Scrub(broker._manager, open_child_process)
        with trio.fail_after(60), caplog.at_level(logging.ERROR):
            await scrub.run_pass()
            await scrub.run_pass()
        (line,) = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
        assert path in line
        assert "triolog repair" in line
        statistics = scrub.statistics()
        assert (statistics.passes, statistics.damages) == (2, 1)
        assert statistics.bytes_read == 2 * sum(segment.size for segment in list(actor_of(broker).log.segments)[:-1])


async def test_it_is_off_by_default_and_runs_by_itself_when_it_is_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "off", topic=SMALL) as broker:
        with trio.fail_after(60):
            await Scrub(broker._manager, open_child_process).run()
    async with running_broker(tmp_path / "on", topic=SMALL, scrub_bytes_per_second=1 << 30, scrub_interval_ms=5) as broker:
        await fill(broker)
        await until(lambda: broker.scrub.statistics().bytes_read > 0)
        assert broker.scrub.statistics().damages == 0


async def test_leaving_while_it_reads_slowly_leaves_no_process(tmp_path: Path) -> None:
    """The leak check of every test would find it."""
    async with running_broker(tmp_path, topic=SMALL, scrub_bytes_per_second=1) as broker:
        await fill(broker)
        scrub = Scrub(broker._manager, open_child_process)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrub.run_pass)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert scrub.statistics().passes == 0
