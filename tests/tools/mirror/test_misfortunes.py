"""Misfortunes of a mirror and its source, of which each would cost records, a cut, or a leader epoch of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import triolog
from triolog.protocol.errors import RequestError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.broker.mirroring import Mirroring
from triolog.server.config import DataPermissions
from triolog.server.config.values import Address
from triolog.server.embedded import MEMORY
from triolog.server.offline.demote import demote
from triolog.server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CUT_FILE,
    RECOVERY_POINT_FILE,
    ProducerIdBlock,
    encode_offsets,
    write_producer_id_block,
)
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.changes import truncate_to
from triolog.server.system.clock import system_now_ms
from triolog.tools.mirror.link import MirrorLink, MirrorState
from triolog.tools.mirror.settings import MirrorSettings
from triolog.tools.mirror.source import Source, SourceError

from tests.support.brokers import actor_of, running_broker, until, value
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer, committed_values
from tests.tools.mirror.test_link import BILLS, LOOPBACK, ORDERS, all_bytes, end, mirroring, serving

SOURCE: Final = "source"
OTHER_ID: Final = bytes(15) + b"1"
FIRST_BILLS: Final = TopicPartition("bills", 0)


def batch_in(epoch: int, base_offset: int = 0) -> bytes:
    """Return a batch as a source returns it."""
    data = bytearray(build_batch([(START_MS, b"k", b"v", ())]))
    data[:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def names_aside(directory: Path) -> list[str]:
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*.aside-*"))


@asynccontextmanager
async def demoted(directory: Path, fs: GateFileSystem, topics: Mapping[str, int]) -> AsyncIterator[Broker]:
    """A server whose topics have one record in each partition, and are mirrors of the source since it was stopped."""
    async with running_broker(directory) as broker:
        for name, partitions in topics.items():
            await broker.topics.create(name, partitions)
            for number in range(partitions):
                await broker.writer.append(TopicPartition(name, number), value("only here"))
    demote(fs, [str(directory)], SOURCE)
    async with running_broker(directory, fs=fs) as broker:
        yield broker


# ---- records that are set aside ------------------------------------------------------------------------------------------


async def test_a_topic_that_cannot_be_replaced_yet_leaves_one_file_for_each_partition(tmp_path: Path) -> None:
    """The link tries again every two seconds."""
    fs = GateFileSystem()
    async with demoted(tmp_path, fs, {"bills": 2}) as broker:
        follow = partial(broker.mirroring.follow_topic, "bills", OTHER_ID, 2, {}, SOURCE)
        fs.fail("write", ".tmp", times=None, after_bytes=5)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                await follow()
        assert names_aside(tmp_path) == []
        fs.heal()
        fs.free = 5
        with pytest.raises(OSError, match="No space left"):
            await follow()
        fs.free = None
        fs.fail("rename", f"bills-1.{0:020}.log.aside-1.tmp", times=2)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                await follow()
        assert names_aside(tmp_path) == [f"bills-0.{0:020}.log.aside-1"]
        assert {str(each.topic_partition) for each in await follow()} == {"bills-0", "bills-1"}
        assert names_aside(tmp_path) == [f"bills-{number}.{0:020}.log.aside-1" for number in range(2)]


async def test_a_topic_with_a_partition_that_is_offline_is_not_replaced_and_not_copied(tmp_path: Path) -> None:
    async with demoted(tmp_path, GateFileSystem(), {"bills": 2}) as broker:
        actor_of(broker, BILLS).take_offline("its device")
        with pytest.raises(RequestError, match="its device"):
            await broker.mirroring.follow_topic("bills", OTHER_ID, 2, {}, SOURCE)
        assert names_aside(tmp_path) == []


async def test_a_topic_that_is_replaced_keeps_the_files_beside_its_log_and_its_name_may_be_long(tmp_path: Path) -> None:
    name = "o" * 249
    async with demoted(tmp_path, GateFileSystem(), {name: 1}) as broker:
        aside = f"{7:020}.log.aside-9"
        (tmp_path / f"{name}-0" / aside).write_bytes(b"of an earlier demotion")
        [found] = await broker.mirroring.follow_topic(name, OTHER_ID, 1, {}, SOURCE)
        await broker._manager.changes.delete_doomed(at_once=True)
        files = {each.name.rpartition("-0.")[2]: each.read_bytes() for each in tmp_path.glob("*.aside-*")}
        assert files.keys() == {aside, f"{0:020}.log.aside-1"}
        assert files[aside] == b"of an earlier demotion"
        assert Path(found.path).read_bytes() == files[f"{0:020}.log.aside-1"]


async def test_a_full_disk_of_the_mirror_stops_one_topic_and_not_the_link(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with demoted(tmp_path / "b", fs, {"orders": 1}) as mirror, serving(tmp_path / "a") as source:
        await source.broker.topics.create("orders")
        await source.broker.topics.create("bills", 2)
        await source.append(BILLS, "one")
        fs.fail("write", "aside-1.tmp", times=None)
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: "orders" in link.troubles)
            assert "No space left" in link.troubles["orders"]
            fs.heal()
            await until(lambda: end(mirror, BILLS) == 1)


# ---- leader epochs -------------------------------------------------------------------------------------------------------


async def test_a_promotion_that_is_repeated_begins_the_epoch_after_that_of_the_source(tmp_path: Path) -> None:
    """`triolog demote` notes the next epoch for the old server: a third one would be that of its own promotion."""
    fs = GateFileSystem()
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.mirroring.follow_topic("orders", OTHER_ID, 1, {}, SOURCE, epoch=3)
        await broker.mirroring.append(ORDERS, batch_in(3))
        fs.fail("write", "topics.json.tmp", times=2)
        for _ in range(2):
            with pytest.raises(RequestError, match="nothing is promoted"):
                await broker.mirroring.promote(SOURCE)
        await broker.mirroring.promote(SOURCE)
        assert broker.reader.snapshot(ORDERS).leader_epoch == 4


async def test_a_mirror_has_the_epoch_of_its_source_from_its_creation_on_and_notes_later_ones_first(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        before = broker._manager._catalogue.generation
        await broker.mirroring.follow_topic("bills", OTHER_ID, 2, {}, SOURCE, epoch=3)
        assert broker._manager._catalogue.generation == before + 1, "a crash between two writes would lose the epoch"
        assert broker._manager.topics.get("bills").topic.source_epoch == 3
        await broker.mirroring.append(FIRST_BILLS, batch_in(5))
        assert broker._manager.topics.get("bills").topic.source_epoch == 5
        await broker.mirroring.promote(SOURCE)
        assert {broker.reader.snapshot(each).leader_epoch for each in (FIRST_BILLS, BILLS)} == {6}


async def test_epochs_of_all_topics_are_noted_with_one_write(tmp_path: Path) -> None:
    """Each restart of a Kafka broker begins epochs in all topics."""
    async with running_broker(tmp_path) as broker:
        names = [f"topic-{number}" for number in range(5)]
        for number, name in enumerate(names):
            await broker.mirroring.follow_topic(name, bytes(15) + bytes([number + 1]), 1, {}, SOURCE)
        before = broker._manager._catalogue.generation
        for _ in range(2):
            await broker.mirroring.confirm_sources(dict.fromkeys(names, 9))
        assert broker._manager._catalogue.generation == before + 1


async def test_partitions_that_are_added_begin_in_the_epoch_of_the_topic(tmp_path: Path) -> None:
    """After a promotion both servers may add them, and the logs must not have one epoch."""
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("bills", 1)
        await broker.logs.raise_leader_epoch(FIRST_BILLS)
        await broker.topics.create_partitions("bills", 2)
        await broker.writer.append(BILLS, value("one"))
        assert broker.reader.snapshot(BILLS).leader_epoch == 1
    async with running_broker(tmp_path) as broker:
        [header] = [header for header, _ in iter_batches(await all_bytes(broker, BILLS))]
        assert (header.partition_leader_epoch, broker.reader.snapshot(BILLS).leader_epoch) == (1, 1)


async def test_a_server_whose_leader_epochs_cannot_be_read_is_not_demoted(tmp_path: Path) -> None:
    fs = OsFileSystem(DataPermissions.UMASK)
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("orders")
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="Start the server and stop it"):
        demote(fs, [str(tmp_path)], SOURCE)


@asynccontextmanager
async def held_fetches(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[trio.Event, trio.Event]]:
    """The link's fetches wait: (one has come, they may go)."""
    has_come, may_go, fetch = trio.Event(), trio.Event(), Source.fetch

    async def wait(source: Source, *arguments: Any, **options: Any) -> Any:
        has_come.set()
        await may_go.wait()
        return await fetch(source, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Source, "fetch", wait)
        yield has_come, may_go


async def test_a_mirror_agrees_again_with_a_source_that_begins_an_epoch_while_it_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a leader of Kafka that was elected unclean, or a mirror of a mirror: records before the epoch are gone."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        for number in range(3):
            await source.append(ORDERS, f"old {number}")
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 3)
            async with held_fetches(monkeypatch) as (has_come, may_go):
                await has_come.wait()
                await actor_of(source.broker, ORDERS).perform(partial(truncate_to, offset=1))
                await source.broker.logs.raise_leader_epoch(ORDERS)
                for number in range(5):
                    await source.append(ORDERS, f"new {number}")
                may_go.set()
                await until(lambda: end(mirror, ORDERS) == 6)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            assert [(each.start_offset, each.end_offset) for each in link.set_aside] == [(1, 3)]


async def test_a_topic_that_was_created_again_is_never_appended_to_the_mirror_of_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        await source.append(ORDERS, "old one")
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 1)
            async with held_fetches(monkeypatch) as (has_come, may_go):
                await has_come.wait()
                await source.broker.topics.delete("orders")
                await source.broker.topics.create("orders")
                for number in range(3):
                    await source.append(ORDERS, f"new {number}")
                may_go.set()
                await until(lambda: "another id" in link.troubles.get("orders", ""))
            assert end(mirror, ORDERS) == 1
            assert not link.set_aside


async def test_a_compacted_topic_whose_batches_do_not_meet_the_end_of_the_mirror_is_copied(tmp_path: Path) -> None:
    """A power cut took records from the source, and the next batch begins before the mirror's end. Otherwise the link would be
    refused a batch for ever, and take no cut."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1, {"cleanup.policy": "compact"})
        for number in range(2):
            await source.append(ORDERS, f"old {number}", f"old {number} too")
        async with mirroring(mirror, source.kafka):
            await until(lambda: end(mirror, ORDERS) == 4)
        await actor_of(source.broker, ORDERS).perform(partial(truncate_to, offset=2))
        for number in range(2):
            await source.append(ORDERS, *(f"new {number} {each}" for each in range(3)))
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 8)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            assert [(each.start_offset, each.end_offset) for each in link.set_aside] == [(2, 4)]


@pytest.mark.parametrize("is_behind", [False, True])
async def test_a_mirror_begins_inside_a_batch_of_which_the_source_has_deleted_the_first_records(
    tmp_path: Path, is_behind: bool
) -> None:
    """Kafka Streams deletes up to the offset that it has committed. The link would be refused that batch for ever."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        await source.append(ORDERS, "first")
        if is_behind:
            async with mirroring(mirror, source.kafka):
                await until(lambda: end(mirror, ORDERS) == 1)
        await source.append(ORDERS, *map(str, range(5)))
        await source.broker.logs.delete_records(ORDERS, 4)
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 6 and mirror.reader.snapshot(ORDERS).log_start_offset == 4)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            assert not link.set_aside


async def test_records_that_a_mirror_has_lost_in_the_middle_of_its_log_are_copied_again(tmp_path: Path) -> None:
    """A power cut may take pages between others that reached the device. The mirror ends where the source does, so its lag is
    0, and a promotion would lose what the source still has."""
    directory = tmp_path / "b"
    async with serving(tmp_path / "a") as source:
        await source.broker.topics.create("orders")
        for number in range(5):
            await source.append(ORDERS, f"{number}")
        async with running_broker(directory, clock=system_now_ms) as mirror, mirroring(mirror, source.kafka):
            await until(lambda: end(mirror, ORDERS) == 5)
        for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
            (directory / name).unlink()
        log = directory / "orders-0" / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        data[2 * len(data) // 5 + 65] ^= 1  # in the third of five equal batches
        log.write_bytes(data)
        async with running_broker(directory, clock=system_now_ms) as mirror:
            assert [(gap.start_offset, gap.end_offset) for gap in mirror.mirroring.log(ORDERS).gaps] == [(2, 3)]
            async with mirroring(mirror, source.kafka) as link:
                await until(lambda: link.state is MirrorState.COPYING and end(mirror, ORDERS) == 5)
                assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
                assert [(each.start_offset, each.end_offset, each.records) for each in link.set_aside] == [(2, 5, 2)]


# ---- cuts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.merge
async def test_a_promotion_leaves_topics_whole_that_the_source_does_not_have(tmp_path: Path) -> None:
    """They are as the source had them, or as this server had them before it was demoted."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        await source.broker.topics.create("bills", 2)
        await source.append(BILLS, "one")
        await source.broker.offsets.commit("readers", [(ORDERS, 0, None)])
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: "__consumer_offsets" in mirror.mirroring.cut_topics and end(mirror, BILLS) == 1)
            await source.broker.topics.delete("bills")
            await until(lambda: "bills" in link.troubles)
            await source.append(ORDERS, "two")
            await until(lambda: (mirror.mirroring._cut or {}).get(ORDERS) == 1)
            promotion = await link.promote(accept_incomplete=False)
            assert (promotion.has_cut, promotion.set_aside) == (True, ())
            assert end(mirror, BILLS) == 1


async def test_a_cut_has_every_partition_also_where_one_has_failed_in_a_long_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause of the failed partition is over before the round is."""
    cuts: list[set[str]] = []

    async def note(mirroring: Mirroring, ends: Mapping[TopicPartition, int]) -> None:
        cuts.append({each.topic for each in ends})

    monkeypatch.setattr("triolog.tools.mirror.link.PARTITION_PAUSE_S", 0.0)
    monkeypatch.setattr(Mirroring, "note_cut", note)
    async with triolog.open(MEMORY, kafka=LOOPBACK, for_tests=True) as source:
        for name in ("orders", "bills"):
            await source.create_topic(name, 1)
            await source.append(name, [b"one"], partition=0)
        async with running_broker(tmp_path, clock=system_now_ms) as mirror:
            source.faults.add(api="Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="bills", times=1)
            async with mirroring(mirror, source.kafka, internal_topics=True) as link:
                await until(lambda: bool(cuts))
                assert cuts[0] == {"orders", "bills"}, link.troubles


async def test_a_source_that_throttles_is_not_taken_for_one_that_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion would end the copying then."""
    left, fetch = [5], Source.fetch

    async def throttle(source: Source, *arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        return [] if left[0] >= 0 else await fetch(source, *arguments, **options)

    monkeypatch.setattr(Source, "fetch", throttle)
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        await source.append(ORDERS, "one")
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: link.progress().lag_ms >= 0)
            assert end(mirror, ORDERS) == 1


async def test_partitions_without_a_leader_are_left_out_and_the_others_are_read() -> None:
    source = Source([], None, None)
    source.nodes = {1: ("one", 1), 2: ("two", 2)}
    for leader in (-1, 3):
        assert await source.ends({ORDERS: leader}) == {}
        assert await source.fetch({ORDERS: 0}, {ORDERS: leader}, max_wait_ms=0, max_bytes=1) == []


@pytest.mark.parametrize("has_written", [True, False])
async def test_an_epoch_that_the_source_gave_out_after_the_newest_cut_is_given_out_to_nobody_else(
    tmp_path: Path, has_written: bool
) -> None:
    """Else both producers write with it, and neither is fenced."""
    (tmp_path / "a").mkdir()
    write_producer_id_block(OsFileSystem(), str(tmp_path / "a"), ProducerIdBlock(2**50), durable=True)
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        known = await TransactionalProducer.start(source.broker)
        if has_written:
            await known.produce(ORDERS, "one")
            await known.commit()
        async with mirroring(mirror, source.kafka, internal_topics=True):
            wanted = {"orders", "__transaction_state"}
            await until(lambda: wanted <= mirror.mirroring.cut_topics and _is_newest(mirror.mirroring, source.broker))
        later = await TransactionalProducer.start(source.broker)
        assert (later.producer_id, later.producer_epoch) == (known.producer_id, known.producer_epoch + 1)
        await mirror.mirroring.promote(mirror.mirroring.source_of("orders") or "")
        known.broker = later.broker = mirror
        await known.produce(ORDERS, "two")
        other = await TransactionalProducer.start(mirror)
        assert (other.producer_id > known.producer_id, other.producer_epoch) == (True, 0)
        await other.produce(ORDERS, "three")
        for each in (known, later):
            with pytest.raises(RequestError, match="does not belong to producer id"):
                await each.produce(ORDERS, "of a fenced producer")
        await other.commit()
        assert await committed_values(mirror, ORDERS) == [*(["one"] if has_written else []), "three"]


def _is_newest(mirroring: Mirroring, source: Broker) -> bool:
    return mirroring._cut == {each: end(source, each) for each in mirroring._cut or ()}


async def test_a_promotion_keeps_the_cut_of_another_source(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.mirroring.follow_topic("__consumer_offsets", OTHER_ID, 1, {}, "first")
        await broker.mirroring.follow_topic("bills", bytes(15) + b"2", 1, {}, "second")
        await broker.mirroring.note_cut({TopicPartition("__consumer_offsets", 0): 0})
        await broker.mirroring.promote("second")
        assert broker.mirroring.cut_topics == {"__consumer_offsets"}
        assert (tmp_path / CUT_FILE).exists()


async def test_a_link_without_internal_topics_never_goes_back_to_a_cut_of_the_time_when_it_had_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        await broker.mirroring.follow_topic("__consumer_offsets", OTHER_ID, 1, {}, SOURCE)
        (tmp_path / CUT_FILE).write_bytes(encode_offsets({TopicPartition("__consumer_offsets", 0): 0}))
        link = MirrorLink(MirrorSettings(source=(Address("127.0.0.1", 1),)), broker)
        nursery.start_soon(link.run)
        with pytest.raises(RequestError, match="the first copy of source is not complete"):
            await link.promote(accept_incomplete=False)
        assert link.state is not MirrorState.PROMOTED
        nursery.cancel_scope.cancel()


async def test_the_newest_of_two_cuts_is_found_also_where_the_older_one_has_a_topic_that_is_gone(tmp_path: Path) -> None:
    """A log directory that was out of service has an old file."""
    paths = [tmp_path / name for name in ("a", "b")]
    async with running_broker(*paths) as broker:
        for path, cut in zip(paths, ({ORDERS: 5, BILLS: 1000}, {ORDERS: 6}), strict=True):
            (path / CUT_FILE).write_bytes(encode_offsets(cut))
        await broker.mirroring.load_cut()
        assert broker.mirroring._cut == {ORDERS: 6}


async def test_a_promotion_right_after_the_start_copies_the_rest_of_a_source_that_can_be_reached(tmp_path: Path) -> None:
    """A power cut of the mirror in a planned promotion may bring an old cut back."""
    async with serving(tmp_path / "a") as source:
        await source.broker.topics.create("orders")
        await source.broker.offsets.commit("readers", [(ORDERS, 0, None)])
        async with running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
            async with mirroring(mirror, source.kafka, internal_topics=True):
                await until(lambda: {"orders", "__consumer_offsets"} <= mirror.mirroring.cut_topics)
        await source.append(ORDERS, "acknowledged")
        async with running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
            async with mirroring(mirror, source.kafka, internal_topics=True) as link:
                promotion = await link.promote(accept_incomplete=False)
            assert (promotion.has_cut, end(mirror, ORDERS)) == (True, 1)


async def test_a_promotion_whose_connection_breaks_copies_the_rest_of_a_source_that_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that heard nothing for a while learns at this moment that its connection is gone."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        async with mirroring(mirror, source.kafka) as link, trio.open_nursery() as nursery:
            await until(lambda: link.state is MirrorState.COPYING)
            fetch, has_come, breaks = Source.fetch, trio.Event(), trio.Event()

            async def break_once(self: Source, *arguments: Any, **options: Any) -> Any:
                if not breaks.is_set():
                    has_come.set()
                    await breaks.wait()
                    raise SourceError("the connection is cut")
                return await fetch(self, *arguments, **options)

            monkeypatch.setattr(Source, "fetch", break_once)
            await has_come.wait()
            await source.append(ORDERS, "acknowledged")
            nursery.start_soon(partial(link.promote, accept_incomplete=False))
            await until(link._promoting.locked)
            breaks.set()
            await until(lambda: link.state is MirrorState.PROMOTED)
        assert end(mirror, ORDERS) == 1
