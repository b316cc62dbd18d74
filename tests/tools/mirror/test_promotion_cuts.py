"""A power cut before any operation of the disk in `promote` and `demote`: all topics are mirrors afterwards, or none is."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.offline.demote import demote
from triolog.server.storage.disk.checkpoints import CUT_FILE, encode_offsets
from triolog.server.storage.log.mirrored import mirror_error

from tests.support.brokers import records_from, running_broker, value
from tests.support.counting_fs import made_directories
from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem, distinct, put
from tests.support.transactions import TransactionalProducer, committed_offset

SOURCE: Final = "source"
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
TOPICS: Final = {"orders": 1, "bills": 2}
GROUP: Final = "readers"
ONE_IN: Final = 5
"""Moments of which one is tried in a run of the commit and the merge tier."""

Ends = dict[TopicPartition, int]


@asynccontextmanager
async def serving(fs: CrashFileSystem, paths: Sequence[Path]) -> AsyncIterator[Broker]:
    async with running_broker(*paths, fs=fs, durability="fsync") as broker:
        yield broker


def ends(broker: Broker) -> Ends:
    """Where all partitions end, those of the coordinators too."""
    logs = [hosted.actor.log for hosted in broker._manager.topics.hosted()]
    return {log.topic_partition: log.log_end_offset for log in logs}


async def fetched(broker: Broker, topic_partition: TopicPartition, start: int = 0, end: int | None = None) -> bytes:
    """Return the batches from an offset on, up to another one."""
    [answer] = await broker.reader.fetch([FetchPartition(topic_partition, start, 2**20)], max_bytes=2**20)
    assert answer.fetched is not None, answer.error
    batches = iter_batches(answer.fetched.records)
    return b"".join(bytes(batch) for header, batch in batches if end is None or header.next_offset <= end)


async def copy(source: Broker, mirror: Broker) -> None:
    """Bring the mirror up to the source."""
    for hosted in list(source._manager.topics):
        topic = hosted.topic
        await mirror.mirroring.follow_topic(topic.name, topic.id_bytes, len(hosted.partitions), topic.configs, SOURCE)
    for topic_partition, end in ends(source).items():
        if (position := mirror.mirroring.log(topic_partition).log_end_offset) < end:
            await mirror.mirroring.append(topic_partition, await fetched(source, topic_partition, position))


async def fill(source: Broker, texts: str) -> None:
    """One record in each topic, one of a transaction, and a committed offset."""
    producer = await TransactionalProducer.start(source)
    for text in texts:
        await source.writer.append(ORDERS, value(text))
        await producer.produce(BILLS, text)
    await producer.commit_offset(GROUP, ORDERS, ends(source)[ORDERS])
    await producer.commit()


async def moments_of_promotion(
    source: Broker, fs: CrashFileSystem, paths: Sequence[Path]
) -> tuple[list[CrashFileSystem], CrashFileSystem, Ends]:
    """The mirror's files before each operation of a promotion, and after it; and the cut. Two records came after the cut."""
    async with serving(fs, paths) as mirror:
        for name, partitions in TOPICS.items():
            await source.topics.create(name, partitions)
        await fill(source, "ab")
        await copy(source, mirror)
        cut = ends(source)
        await mirror.mirroring.note_cut(cut)
        await fill(source, "c")
        await copy(source, mirror)
        fs.sync_all()
        moments = fs.moments()
        promotion = await mirror.mirroring.promote(SOURCE)
        assert promotion.has_cut
        assert {each.topic_partition for each in promotion.set_aside} > {ORDERS, BILLS}
        moments, after = list(moments), fs.copy()
    return distinct(moments), after, cut


async def check_mirror(source: Broker, mirror: Broker) -> None:
    """It is read-only, continues, and can be promoted."""
    with pytest.raises(type(mirror_error("", "")), match="read-only"):
        await mirror.writer.append(ORDERS, value("x"))
    await mirror.mirroring.load_cut()
    await copy(source, mirror)
    for topic_partition, end in ends(source).items():
        assert mirror.mirroring.log(topic_partition).log_end_offset == end, topic_partition
        assert await fetched(mirror, topic_partition) == await fetched(source, topic_partition), topic_partition
    await mirror.mirroring.note_cut(ends(source))
    promotion = await mirror.mirroring.promote(SOURCE)
    assert (promotion.has_cut, promotion.set_aside) == (True, ())
    assert [bytes(record.value or b"") for record in await records_from(mirror, ORDERS)] == [b"a", b"b", b"c"]


async def check_promoted(source: Broker, broker: Broker, cut: Ends) -> None:
    """It is writable everywhere, and as the source was at the cut."""
    for topic_partition, end in cut.items():
        log = broker.mirroring.log(topic_partition)
        assert log.leader_epoch > source.mirroring.log(topic_partition).leader_epoch, topic_partition
        assert await fetched(broker, topic_partition, 0, end) == await fetched(source, topic_partition, 0, end), topic_partition
    assert [bytes(record.value or b"") for record in await records_from(broker, ORDERS)] == [b"a", b"b"]
    directory = broker.mirroring.log(ORDERS).directory
    [aside] = [name for name in broker.disk.fs.list_directory(directory) if ".aside-" in name]
    assert aside == f"{2:020}.log.aside-3"
    assert await committed_offset(broker, GROUP, ORDERS) == 2
    assert (await broker.writer.append(ORDERS, value("d"))).base_offset == 2
    before, _ = await source.producers.init(None, 0)
    after, _ = await broker.producers.init(None, 0)
    assert after > before + 1000
    await fill(broker, "e")


@pytest.mark.merge
@pytest.mark.parametrize("seed", seeds(10, merge=1, commit=1))
@pytest.mark.parametrize("directories", [1, 2])
async def test_a_power_cut_during_a_promotion_leaves_a_mirror_or_a_promoted_server(
    tmp_path: Path, directories: int, seed: int
) -> None:
    """Before its first operation it is a mirror, and once `promote` has returned it is promoted."""
    rng, fs, source_fs = random.Random(seed), CrashFileSystem(), CrashFileSystem()
    paths = made_directories(fs, tmp_path, directories)
    (tmp_path / "source").mkdir()
    [source_path] = made_directories(source_fs, tmp_path / "source", 1)
    async with serving(source_fs, [source_path]) as source:
        moments, after, cut = await moments_of_promotion(source, fs, paths)
        chosen = moments if seed else moments[rng.randrange(ONE_IN) :: ONE_IN]
        promoted: list[bool] = []
        for files in [*(each.crash(rng) for each in chosen), after.crash(rng)]:
            async with serving(files, paths) as broker:
                [source_name] = {broker.mirroring.source_of(topic.topic) for topic in cut}
                promoted.append(not source_name)
                if source_name:
                    await check_mirror(source, broker)
                else:
                    await check_promoted(source, broker, cut)
    assert promoted[-1]
    assert not promoted[0]


async def stopped_server(fs: CrashFileSystem, paths: Sequence[Path]) -> None:
    async with serving(fs, paths) as broker:
        for name, partitions in TOPICS.items():
            await broker.topics.create(name, partitions)
        await fill(broker, "ab")


async def mirror_sources(fs: CrashFileSystem, paths: Sequence[Path]) -> set[str]:
    """Start a server on the files, and return the sources of its topics."""
    async with serving(fs, paths) as broker:
        return {hosted.topic.mirror_of for hosted in broker._manager.topics}


@pytest.mark.merge
@pytest.mark.parametrize("seed", seeds(10, merge=1, commit=1))
@pytest.mark.parametrize("directories", [1, 2])
async def test_a_power_cut_while_a_server_is_demoted_leaves_all_topics_or_none_as_mirrors(
    tmp_path: Path, directories: int, seed: int
) -> None:
    rng, fs = random.Random(seed), CrashFileSystem()
    paths = made_directories(fs, tmp_path, directories)
    await stopped_server(fs, paths)
    names, moments = [str(path) for path in paths], fs.moments()
    demote(fs, names, SOURCE)
    after = fs.copy()
    for files in (each.crash(rng) for each in distinct(list(moments))):
        assert await mirror_sources(files.copy(), paths) in ({""}, {SOURCE})
        demote(files, names, SOURCE)
        assert await mirror_sources(files, paths) == {SOURCE}
    assert await mirror_sources(after.crash(rng), paths) == {SOURCE}


async def test_a_cut_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    """A kill leaves the file of an earlier cut in one of two directories, and a power cut a broken one."""
    fs = CrashFileSystem()
    paths = made_directories(fs, tmp_path, 2)
    first, second = (f"{path}/{CUT_FILE}" for path in paths)
    async with serving(fs, paths) as broker:
        cuts = [dict.fromkeys((ORDERS, BILLS), offset) for offset in (1, 2)]
        for cut in cuts:
            await broker.mirroring.note_cut(cut)
        old, new = (encode_offsets(cut) for cut in cuts)
        for contents, newest in (((new, new), 2), ((old, new), 2), ((new[:-3], old), 1), ((old[:-3], new[:-3]), None)):
            for path, content in zip((first, second), contents, strict=True):
                put(fs, path, content)
            await broker.mirroring.load_cut()
            assert broker.mirroring._cut == (None if newest is None else dict.fromkeys((ORDERS, BILLS), newest))


@pytest.mark.parametrize("directories", [1, 2])
async def test_a_server_that_is_demoted_forgets_the_cut_of_an_earlier_source(tmp_path: Path, directories: int) -> None:
    """A power cut may bring the file of a promoted server back. A promotion must not go back to it."""
    fs = CrashFileSystem()
    paths = made_directories(fs, tmp_path, directories)
    await stopped_server(fs, paths)
    for path in paths:
        put(fs, f"{path}/{CUT_FILE}", encode_offsets({ORDERS: 1}))
    fs.sync_all()
    demote(fs, [str(path) for path in paths], SOURCE)
    async with serving(fs.crash(None), paths) as broker:
        await broker.mirroring.load_cut()
        assert not broker.mirroring.cut_topics
