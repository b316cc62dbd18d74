"""What damage took out of logs, and who passes over it, as a scrape tells it."""

from __future__ import annotations

from pathlib import Path

from triolog.server.broker import Broker, FetchPartition, note_gaps
from triolog.server.listeners.http.gap_metrics import gap_metrics

from tests.support.brokers import LARGE, PARTITION, TOPIC, one_partition
from tests.support.damaged_batches import damage_batch
from tests.support.logs import START_MS

NAMES = ("triolog_gaps", "triolog_gap_records", "triolog_gaps_not_accepted", "triolog_gap_passes", "triolog_gap_refusals")


async def told(broker: Broker) -> dict[str, dict[tuple[str, ...], float]]:
    """By name and labels, without what has no sample."""
    families = list(gap_metrics(await broker.statistics()))
    assert {family.name for family in families} == {*NAMES, "triolog_group_gap_passes"}
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples if "_created" not in sample.name}
        for family in families
        if family.samples
    }


async def test_a_scrape_tells_what_is_missing_and_who_goes_on_behind_it(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        assert await told(broker) == {}, "without damage there is nothing to tell"
        for _ in range(3):
            await broker.writer.append(PARTITION, [(START_MS, None, b"value", ())] * 3)
    damage_batch(tmp_path, f"{TOPIC}-0", 1)
    async with one_partition(tmp_path) as broker:
        for policy in ("skip", "refuse"):
            await broker.topics.alter_configs(TOPIC, {"gap.policy": policy})
            for client in ("a", "b", "a"):
                answers = await broker.reader.fetch([FetchPartition(PARTITION, 3, LARGE)], max_bytes=LARGE)
                note_gaps(broker.gaps.passes, client, "127.0.0.1", answers)
        for offset in (3, 9):
            await broker.offsets.commit("g", [(PARTITION, offset, None)])
        by_topic = dict(zip(NAMES, (1.0, 3.0, 1.0, 2.0, 2.0), strict=True))
        groups = {"triolog_group_gap_passes": {("g", TOPIC): 1.0}}
        assert await told(broker) == {name: {(TOPIC,): value} for name, value in by_topic.items()} | groups
        await broker.gaps.accept(PARTITION, 3)
        assert (await told(broker))["triolog_gaps_not_accepted"] == {(TOPIC,): 0.0}
