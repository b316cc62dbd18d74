"""A server that is killed while share groups work: what was acknowledged is never given again, the rest comes again, and what
was given back comes with a delivery count that says so.

A run is a seed: the durability, the members, what they say, when the server ends, and which derived files get another content
before it starts again. `TRIOLOG_TEST_SHARE_CRASHES=500` makes so many.

`clients/test_share_groups.py` has one such crash with librdkafka; its members over random kills are here alone.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import attrs
import pytest
import trio
import triolog
from triolog.protocol.errors import RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Acknowledgement, AcquireMode, Broker, OffsetReset, ShareConfig, ShareFetch, ShareKey
from triolog.server.embedded import EmbeddedBroker

from tests.support.altered_files import alter_folders
from tests.support.brokers import records_from
from tests.support.counts import counts
from tests.support.logs import START_MS
from tests.support.model_log import lookups

RUNS: Final = int(os.environ.get("TRIOLOG_TEST_SHARE_CRASHES") or counts(50, commit=4))
GROUP: Final = "group"
TOPIC: Final = "topic"
PARTITION: Final = TopicPartition(TOPIC, 0)
RECORDS: Final = 200
CRASHES: Final = 3
MEMBERS: Final = 3
GAP, ACCEPT, RELEASE, REJECT = range(4)
SMALL: Final = {"segment.bytes": "1024", "index.interval.bytes": "0"}
CONFIG: Final = ShareConfig(offset_reset=OffsetReset.EARLIEST, delivery_count_limit=10)


@attrs.define(eq=False)
class Model:
    """What members know that has happened."""

    done: set[int] = attrs.field(factory=set)
    """Acknowledged, and answered so."""
    perhaps_done: set[int] = attrs.field(factory=set)
    """It was not answered."""
    given_back: Counter[int] = attrs.field(factory=Counter)
    """How often, and answered so."""
    given: Counter[int] = attrs.field(factory=Counter)
    said: int = 0

    def see(self, offset: int, count: int) -> None:
        assert offset not in self.done, f"offset {offset} was acknowledged, and comes again"
        assert count > self.given_back[offset], f"offset {offset} was given back {self.given_back[offset]} times"
        self.given[offset] += 1
        assert count <= self.given[offset]


@attrs.define(eq=False)
class Run:
    """One seeded run."""

    rng: Random
    broker: EmbeddedBroker
    model: Model = attrs.field(factory=Model)
    key: ShareKey | None = None
    altered: list[dict[str, str]] = attrs.field(factory=list)
    """Before each start: derived files that got another content, and what was done to them."""

    async def play(self) -> None:
        core = self.broker.core
        await core.topics.create(TOPIC, configs={"retention.ms": "-1", **SMALL})
        self.key = ShareKey(GROUP, core.topics.id_of(TOPIC), 0)
        await core.shares.initialize(*self.key)
        await core.topics.alter_configs("__share_group_state", {"internal.segment.bytes": "2048"})
        for first in range(0, RECORDS, 10):
            await core.writer.append(
                PARTITION,
                build_batch(
                    [
                        (START_MS + 10 * number + self.rng.randrange(40), None, b"%d" % number, ())
                        for number in range(first, first + 10)
                    ]
                ),
            )
        for _ in range(CRASHES):
            await self._work_until(self.model.said + self.rng.randint(1, 40))
            await self._start_again()
            await self._check_records()
        await self._work_until(None)
        core = self.broker.core
        summary = core.shares.in_flight(*self.key)
        assert summary is not None
        assert (summary.start_offset, summary.next_offset) == (RECORDS, RECORDS)
        archived = {offset for offset in range(RECORDS) if self.model.given[offset] >= CONFIG.delivery_count_limit}
        assert self.model.done | self.model.perhaps_done | archived == set(range(RECORDS))

    async def _check_records(self) -> None:
        """All of them, from any offset, and by time: an index leads to the right one in each segment."""
        records = await records_from(self.broker.core, PARTITION)
        assert [record.value for record in records] == [b"%d" % number for number in range(RECORDS)]
        for offset in self.rng.sample(range(RECORDS), 20):
            [record, *_] = await self.broker.fetch(TOPIC, offset=offset, max_bytes=1)
            assert record.offset == offset
        expected = dict(self.rng.sample(sorted(lookups(records).items()), RECORDS))
        answers = await self.broker.offsets_for_times([(PARTITION, asked) for asked in expected])
        assert [(each.timestamp, each.offset) for each in answers if not isinstance(each, RequestError)] == [*expected.values()]

    async def _start_again(self) -> None:
        """A start after a clean stop believes derived files that nothing contradicts."""
        if self.rng.random() < 0.5:
            await self.broker.restart()
            await self.broker.stop()
        self.altered.append(alter_folders(Path(self.broker.path), self.rng, share=0.7, are_lookups_checked=True))
        await self.broker.restart()

    async def _work_until(self, said: int | None) -> None:
        """Let members work until so much was said and the server is killed under them, or until nothing is left."""
        core, enough = self.broker.core, trio.Event()
        core.shares.config_of = lambda _: CONFIG
        async with trio.open_nursery() as killing, trio.open_nursery() as working:
            for number in range(MEMBERS):
                working.start_soon(self._consume, core, f"member-{number}", said, enough)
            if said is not None:
                await enough.wait()
                killing.start_soon(self.broker.crash)
                working.cancel_scope.cancel()

    async def _consume(self, core: Broker, member: str, said: int | None, enough: trio.Event) -> None:
        assert self.key is not None
        rng = Random(self.rng.random())
        while True:
            mode = rng.choice(list(AcquireMode))
            fetch = ShareFetch(
                group_id=GROUP,
                member_id=member,
                partitions=[self.key],
                min_bytes=1,
                max_bytes=2**20,
                max_records=rng.randint(1, 20),
                batch_size=rng.randint(1, 20),
                mode=mode,
            )
            fetched, _ = await core.share_fetches.take(fetch, is_last=True)
            acquired = [each for answer in fetched for each in answer.acquired]
            for first, last, count in acquired:
                for offset in range(first, last + 1):
                    self.model.see(offset, count)
            for first, last, _ in acquired:
                await self._say(core, member, rng, first, last)
                if said is not None and self.model.said >= said:
                    enough.set()
            found = core.shares.in_flight(*self.key)
            if found is not None and found.start_offset == RECORDS:
                enough.set()
                return
            await trio.lowlevel.checkpoint()

    async def _say(self, core: Broker, member: str, rng: Random, first: int, last: int) -> None:
        kinds = rng.choices((GAP, ACCEPT, RELEASE, REJECT), (1, 10, 5, 1), k=last - first + 1)
        offsets = dict(zip(range(first, last + 1), kinds, strict=True))
        done = {offset for offset, kind in offsets.items() if kind != RELEASE}
        self.model.perhaps_done |= done
        assert self.key is not None
        try:
            await core.shares.acknowledge(self.key, member, [Acknowledgement(first, last, kinds)])
        except RequestError:
            return
        self.model.done |= done
        self.model.given_back.update(offset for offset, kind in offsets.items() if kind == RELEASE)
        self.model.said += 1


@pytest.mark.merge
@pytest.mark.parametrize("seed", range(RUNS))
async def test_what_was_acknowledged_never_comes_again_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    async with triolog.open(tmp_path, for_tests=True, durability=rng.choice(("os", "fsync"))) as broker:
        run = Run(rng, broker)
        try:
            await run.play()
        except BaseException as exc:
            exc.add_note(f"altered: {run.altered}")
            raise
