"""Two servers in one process: one copies the other, over Kafka's protocol, and is promoted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
import trio.testing
import triolog
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.config import DataPermissions
from triolog.server.config.listener_security import ClientAuth, ListenerSecurity
from triolog.server.config.values import Address
from triolog.server.embedded import MEMORY
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.offline.demote import demote
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.log.changes import truncate_to
from triolog.server.system.clock import system_now_ms
from triolog.tools.forward.settings.link_settings import Secret
from triolog.tools.mirror.link import MirrorLink, MirrorState
from triolog.tools.mirror.settings import MirrorSettings
from triolog.tools.mirror.source import Source

from tests.support.brokers import PATIENCE_S, actor_of, running_broker, until
from tests.support.certificates import Certificates
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS
from tests.support.share_members import ACCEPT, GROUP, REJECT, RELEASE, ShareMember
from tests.support.transactions import TransactionalProducer, committed_offset, committed_values

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
NAME, PASSWORD = "copier", "secret of the copier"
LOGINS = {
    "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
    "sasl_users": {NAME: PASSWORD},
    "connection_failed_authentication_delay_ms": 1,
}
LOOPBACK = Address("127.0.0.1", 0)


@attrs.define(eq=False)
class Server:
    """A broker with a Kafka listener."""

    broker: Broker
    kafka: Address
    listeners: Listeners

    async def append(self, topic_partition: TopicPartition, *texts: str) -> int:
        """The offset of the last record."""
        batch = build_batch([(START_MS, b"k", text.encode(), ()) for text in texts])
        return (await self.broker.writer.append(topic_partition, batch)).last_offset


@asynccontextmanager
async def serving(directory: Path, **settings: Any) -> AsyncIterator[Server]:
    async with running_broker(directory, clock=system_now_ms, **settings) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(None, LOOPBACK, http=None))
        assert addresses.kafka is not None
        yield Server(broker, addresses.kafka, listeners)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def mirroring(broker: Broker, source: Address, **keys: Any) -> AsyncIterator[MirrorLink]:
    link = MirrorLink(MirrorSettings(source=(source,), **keys), broker)
    link.reserve()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        yield link
        nursery.cancel_scope.cancel()


async def all_bytes(broker: Broker, topic_partition: TopicPartition, start: int | None = None) -> bytes:
    """From an offset on, by default from the log start."""
    start = broker.reader.snapshot(topic_partition).log_start_offset if start is None else start
    found = await broker.reader.fetch([FetchPartition(topic_partition, start, 2**20)], max_bytes=2**20)
    [answer] = found
    assert answer.fetched is not None, answer.error
    return bytes(answer.fetched.records)


def end(broker: Broker, topic_partition: TopicPartition) -> int:
    try:
        return broker.reader.snapshot(topic_partition).log_end_offset
    except RequestError:
        return -1


async def test_topics_are_copied_with_offsets_ids_configuration_and_bytes_and_refuse_writes(tmp_path: Path) -> None:
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1, {"retention.ms": "-1", "segment.bytes": "1000"})
        await source.broker.topics.create("bills", 2, {"cleanup.policy": "compact"})
        for number in range(50):
            await source.append(ORDERS, f"{number}", "x" * 30)
        await source.append(BILLS, "one", "two")
        await source.broker.logs.raise_leader_epoch(ORDERS)
        await source.append(ORDERS, "three")
        await source.broker.logs.delete_records(ORDERS, 20)
        await source.broker.offsets.commit("readers", [(ORDERS, 70, "note")])
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: link.state is MirrorState.COPYING)
            for each in (ORDERS, BILLS):
                assert await all_bytes(mirror, each) == await all_bytes(source.broker, each)
                ours, theirs = mirror.reader.snapshot(each), source.broker.reader.snapshot(each)
                assert (ours.log_start_offset, ours.log_end_offset) == (theirs.log_start_offset, theirs.log_end_offset)
                assert ours.leader_epoch == theirs.leader_epoch
                assert mirror.topics.id_of(each.topic) == source.broker.topics.id_of(each.topic)
                assert mirror.topics.describe(each.topic).config == source.broker.topics.describe(each.topic).config
            await until(lambda: bool(mirror.offsets.committed_partitions("readers")))
            assert await mirror.offsets.fetch("readers") == [(ORDERS, 70, "note")]
            await source.append(ORDERS, "later")
            await until(lambda: end(mirror, ORDERS) == end(source.broker, ORDERS))
            [told] = (await mirror.statistics()).mirrors
            assert (told.source, told.state, told.partitions, told.lag_records) == (str(source.kafka), "copying", 3, 0)
            assert told.lag_ms >= 0
            assert told.copied_bytes > 0
            batch = build_batch([(START_MS, b"k", b"v", ())])
            for refused in (
                partial(mirror.writer.append, ORDERS, batch),
                partial(mirror.logs.delete_records, ORDERS, 30),
                partial(mirror.topics.alter_configs, "orders", {"retention.ms": "1"}),
                partial(mirror.topics.create_partitions, "bills", 3),
                partial(mirror.topics.create, "another", 1),
            ):
                with pytest.raises(RequestError, match="mirror of source and read-only") as caught:
                    await refused()
                assert caught.value.code is ErrorCode.POLICY_VIOLATION
            await source.broker.topics.alter_configs("orders", {"retention.ms": "7"})
            await source.broker.topics.create_partitions("bills", 3)
            await until(lambda: mirror.topics.partition_count("bills") == 3)
            await until(lambda: mirror.topics.describe("orders").config["retention.ms"] == "7")
            promotion = await link.promote(accept_incomplete=False)
            assert sorted(promotion.topics) == ["bills", "orders"]
            assert not promotion.has_cut
            result = await mirror.writer.append(ORDERS, batch)
            assert result.base_offset == end(source.broker, ORDERS)
            assert mirror.reader.snapshot(ORDERS).leader_epoch == source.broker.reader.snapshot(ORDERS).leader_epoch + 1
            await mirror.topics.create("another", 1)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.merge) for seed in range(1, 4))])
async def test_a_promotion_in_the_middle_of_transactions_keeps_them_whole_and_their_producers_continue(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    directory = tmp_path / "b"
    async with serving(tmp_path / "a") as source:
        for name in ("orders", "bills"):
            await source.broker.topics.create(name, 2)
        done: list[str] = []
        async with running_broker(directory, clock=system_now_ms) as mirror:
            async with mirroring(mirror, source.kafka, internal_topics=True) as link:
                stop = False

                async def write(name: str) -> None:
                    producer = await TransactionalProducer.start(source.broker, name)
                    for number in range(10_000):
                        for partition in (ORDERS, BILLS):
                            await producer.produce(partition, f"{name}-{number}")
                        await producer.commit_offset(f"group-{name}", ORDERS, number + 1)
                        if number % 3 == 2:
                            await producer.abort()
                        else:
                            await producer.commit()
                            done.append(f"{name}-{number}")
                        await trio.sleep(0)
                        if stop:
                            return

                async with trio.open_nursery() as nursery:
                    for name in ("first", "second", "third"):
                        nursery.start_soon(write, name)
                    wanted = rng.randint(20, 60)
                    internal = {"__consumer_offsets", "__transaction_state"}
                    await until(lambda: len(done) > wanted and internal <= mirror.mirroring.cut_topics)
                    promotion = await link.promote(accept_incomplete=False)
                    stop = True
            assert promotion.has_cut
            assert internal <= set(promotion.topics)
            state = {name: await TransactionalProducer.start(mirror, name) for name in ("first", "second", "third")}
            texts = {}
            for partition in (ORDERS, BILLS):
                texts[partition] = set(await committed_values(mirror, partition))
                snapshot = mirror.reader.snapshot(partition)
                assert snapshot.last_stable_offset == snapshot.high_watermark
            assert texts[ORDERS] == texts[BILLS]
            assert texts[ORDERS] <= set(done)
            for name, producer in state.items():
                numbers = [int(text.rpartition("-")[2]) for text in texts[ORDERS] if text.startswith(name)]
                assert await committed_offset(mirror, f"group-{name}", ORDERS) == max(numbers) + 1
                await producer.produce(ORDERS, f"{name}-again")
                await producer.commit()
            assert {f"{name}-again" for name in state} <= set(await committed_values(mirror, ORDERS))
        async with running_broker(directory, clock=system_now_ms) as mirror:
            assert {f"{name}-again" for name in state} <= set(await committed_values(mirror, ORDERS))


async def test_the_old_server_returns_as_a_mirror_and_records_that_only_it_has_are_set_aside(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with serving(old) as source, running_broker(new, clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "both")
        await source.broker.offsets.commit("readers", [(ORDERS, 1, None)])
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: {"orders", "__consumer_offsets"} <= mirror.mirroring.cut_topics)
            with pytest.raises(RequestError) as refused:
                await mirror.offsets.commit("readers", [(ORDERS, 0, None)])
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await link.promote(accept_incomplete=False)
        await mirror.offsets.commit("readers", [(ORDERS, 0, None)])
        for text in ("lost one", "lost two", "lost three"):
            await source.append(ORDERS, text)
        only_old = await all_bytes(source.broker, ORDERS, 1)
        await source.broker.topics.create("never-copied", 1)
    assert set(demote(OsFileSystem(DataPermissions.UMASK), [str(old)], "source")) >= {"orders", "never-copied"}
    async with serving(new) as source, running_broker(old, clock=system_now_ms) as mirror:
        await source.append(ORDERS, "new one")
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: end(mirror, ORDERS) == end(source.broker, ORDERS) and "orders" in mirror.mirroring.cut_topics)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            [aside] = [each for each in link.snapshot()["set_aside"] if each["partition"] == "orders-0"]
            assert (aside["start_offset"], aside["end_offset"], aside["records"]) == (1, 4, 3)
            assert await trio.Path(aside["file"]).read_bytes() == only_old
            assert any("never-copied: the source does not have it" in each for each in link.snapshot()["troubles"])


async def test_topics_that_both_servers_have_created_are_replaced_on_the_one_that_returns(tmp_path: Path) -> None:
    """The first commit of a group creates `__consumer_offsets` on each, with ids of their own. Records of the old one are in
    files beside its directory, which the deletion of the topic leaves."""
    old, new = tmp_path / "old", tmp_path / "new"
    only_old = {}
    async with serving(old) as source:
        for each in (ORDERS, TopicPartition("__consumer_offsets", 0)):
            if each == ORDERS:
                await source.broker.topics.create("orders", 1)
                await source.append(ORDERS, "old one", "old two")
            else:
                await source.broker.offsets.commit("readers", [(ORDERS, 1, None)])
            only_old[str(each)] = await all_bytes(source.broker, each)
    demote(OsFileSystem(DataPermissions.UMASK), [str(old)], "source")
    async with serving(new) as source, running_broker(old, clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "new one")
        await source.broker.offsets.commit("readers", [(ORDERS, 0, None)])
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: {"orders", "__consumer_offsets"} <= mirror.mirroring.cut_topics)
            assert mirror.topics.id_of("orders") == source.broker.topics.id_of("orders")
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            listed = {each["partition"]: Path(each["file"]) for each in link.snapshot()["set_aside"]}
            await mirror.topics.delete("orders")
            assert {name: path.read_bytes() for name, path in listed.items()} == only_old
            assert {path.parent for path in listed.values()} == {old}


async def test_a_mirror_is_not_replaced_by_an_empty_topic_of_a_source_that_was_set_up_again(tmp_path: Path) -> None:
    """Its records may be the only copy. There is no cut meanwhile, and the link has a lag."""
    async with running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        async with serving(tmp_path / "a") as source:
            await source.broker.topics.create("orders", 1)
            await source.append(ORDERS, "one")
            async with mirroring(mirror, source.kafka, internal_topics=True):
                await until(lambda: "orders" in mirror.mirroring.cut_topics)
        async with serving(tmp_path / "again") as source:
            await source.broker.topics.create("orders", 1)
            async with mirroring(mirror, source.kafka, internal_topics=True) as link:
                await until(lambda: "orders" in link.troubles and link.state is MirrorState.COPYING)
                assert "a mirror of source with another id" in link.troubles["orders"]
                assert link.progress().lag_ms == -1
                assert not link.set_aside
        assert end(mirror, ORDERS) == 1


async def test_a_promoted_server_never_follows_its_old_source_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "both")
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 1)
            await link.promote(accept_incomplete=False)
        await mirror.writer.append(ORDERS, build_batch([(START_MS, b"k", b"ours", ())]))
        await source.append(ORDERS, "theirs", "theirs")
        await source.broker.topics.create("later", 1)
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: link.state is MirrorState.STOPPED)
            assert "orders was promoted on this server" in link.error
            assert end(mirror, ORDERS) == 2
            assert "later" not in mirror.topics.names()


async def test_the_lag_of_a_link_on_which_nothing_arrives_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is open, and the response to a long poll does not come."""
    now_s, fetch, waits = [0.0], Source.fetch, trio.Event()

    async def fetch_nothing_new(source: Source, *arguments: Any, max_wait_ms: int, max_bytes: int) -> Any:
        if max_wait_ms:
            waits.set()
            await trio.sleep_forever()
        return await fetch(source, *arguments, max_wait_ms=max_wait_ms, max_bytes=max_bytes)

    monkeypatch.setattr(Source, "fetch", fetch_nothing_new)
    monkeypatch.setattr("triolog.tools.mirror.link.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders")
        async with mirroring(mirror, source.kafka) as link:
            await waits.wait()
            assert link.progress().lag_ms == 0
            now_s[0] = 10.0
            assert link.progress().lag_ms == 10_000


async def test_a_promotion_in_the_moment_of_the_start_has_a_result(tmp_path: Path) -> None:
    """The link has not begun, and its source cannot be reached."""
    async with running_broker(tmp_path, clock=system_now_ms) as broker, trio.open_nursery() as nursery:
        link = MirrorLink(MirrorSettings(source=(Address("127.0.0.1", 1),)), broker)
        nursery.start_soon(link.run)
        with trio.fail_after(PATIENCE_S), pytest.raises(RequestError, match="no mirrors of source"):
            await link.promote(accept_incomplete=False)
        nursery.cancel_scope.cancel()


async def test_a_first_copy_that_is_not_complete_is_promoted_only_on_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await mirror.mirroring.follow_topic("__consumer_offsets", bytes(15) + b"1", 1, {}, "source")
        with pytest.raises(RequestError, match="the first copy of source is not complete"):
            await mirror.mirroring.promote("source")
        with pytest.raises(RequestError, match="no mirrors of other"):
            await mirror.mirroring.promote("other")
        assert not (await mirror.mirroring.promote("source", accept_incomplete=True)).has_cut
        await mirror.offsets.commit("readers", [(TopicPartition("__consumer_offsets", 0), 0, None)])


async def test_records_that_a_source_has_lost_and_replaced_in_the_same_epoch_are_found_and_set_aside(tmp_path: Path) -> None:
    """After a power cut a source may have other records at the offsets of those that it had not synced."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        for number in range(9):
            await source.append(ORDERS, f"old {number}")
        async with mirroring(mirror, source.kafka):
            await until(lambda: end(mirror, ORDERS) == 9)
        await actor_of(source.broker, ORDERS).perform(partial(truncate_to, offset=6))
        for number in range(6, 12):
            await source.append(ORDERS, f"new {number}")
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 12)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            [aside] = link.set_aside
            assert (aside.start_offset, aside.end_offset, aside.records) == (6, 9, 3)


async def test_a_source_that_ends_inside_a_batch_of_the_mirror_has_another_batch_there(tmp_path: Path) -> None:
    """Both have offsets 0 to 2 in the same epoch, and no common record."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        for number in range(3):
            await source.append(ORDERS, f"old {number}", f"old {number} too")
        async with mirroring(mirror, source.kafka):
            await until(lambda: end(mirror, ORDERS) == 6)
        await actor_of(source.broker, ORDERS).perform(partial(truncate_to, offset=0))
        for number in range(3):
            await source.append(ORDERS, f"new {number}")
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 3)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            assert sum(each.records for each in link.set_aside) == 6


@pytest.mark.parametrize("is_connected", [True, False], ids=["after-it-was-a-mirror", "at-once"])
async def test_an_old_server_that_is_promoted_again_begins_an_epoch_in_which_the_other_one_has_not_written(
    tmp_path: Path, is_connected: bool
) -> None:
    """None of the records of that epoch were copied. With the same epoch the records of both would be taken for one log, and
    committed offsets for one history."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving(first) as source, running_broker(second, clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "both")
        await source.broker.offsets.commit("readers", [(ORDERS, 1, None)])
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: {"orders", "__consumer_offsets"} <= mirror.mirroring.cut_topics and end(mirror, ORDERS) == 1)
            await link.promote(accept_incomplete=False)
    fs = OsFileSystem(DataPermissions.UMASK)
    demote(fs, [str(first)], "source")
    async with serving(second) as source, running_broker(first, clock=system_now_ms) as mirror:
        if is_connected:
            async with mirroring(mirror, source.kafka, internal_topics=True):
                await until(lambda: "orders" in mirror.mirroring.cut_topics)
        await mirror.mirroring.promote("source", accept_incomplete=True)
        await source.append(ORDERS, "second 1", "second 2")
        await source.append(ORDERS, "second 3")
        await source.broker.offsets.commit("readers", [(ORDERS, 4, None)])
        for text in ("first 1", "first 2"):
            await mirror.writer.append(ORDERS, build_batch([(START_MS, b"k", text.encode(), ())]))
        await mirror.offsets.commit("readers", [(ORDERS, 2, None)])
        assert mirror.reader.snapshot(ORDERS).leader_epoch > source.broker.reader.snapshot(ORDERS).leader_epoch
    demote(fs, [str(second)], "source")
    async with serving(first) as source, running_broker(second, clock=system_now_ms) as mirror:
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: {"orders", "__consumer_offsets"} <= mirror.mirroring.cut_topics and end(mirror, ORDERS) == 3)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            offsets = TopicPartition("__consumer_offsets", 0)
            assert await all_bytes(mirror, offsets) == await all_bytes(source.broker, offsets)
            assert {str(each.topic_partition): each.records for each in link.set_aside} == {"orders-0": 3, str(offsets): 1}


@pytest.mark.parametrize(
    "fault",
    [
        {"api": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER"},
        {"api": "Fetch", "error": "NONE"},
        {"api": "OffsetForLeaderEpoch", "error": "KAFKA_STORAGE_ERROR"},
    ],
    ids=lambda fault: f"{fault['api']}-{fault['error']}",
)
async def test_a_source_that_cannot_compare_a_partition_now_costs_it_no_records_and_holds_up_no_other(
    tmp_path: Path, fault: dict[str, str]
) -> None:
    """NONE: no records and no error, as from a new leader that does not know its high watermark yet."""
    async with triolog.open(MEMORY, kafka=LOOPBACK, for_tests=True) as source:
        await source.create_topic("orders", 1)
        await source.create_topic("bills", 2)
        await source.append("orders", [b"one"], partition=0)
        async with running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
            async with mirroring(mirror, source.kafka):
                await until(lambda: end(mirror, ORDERS) == 1)
            source.faults.add(**fault, topic="orders")
            await source.append("orders", [b"two"], partition=0)
            await source.append("bills", [b"one"], partition=1)
            async with mirroring(mirror, source.kafka) as link:
                await until(lambda: end(mirror, BILLS) == 1 and "orders-0" in link.troubles)
                assert end(mirror, ORDERS) == 1
                assert not link.set_aside


async def test_an_append_that_is_under_way_at_a_promotion_is_done_before_the_log_is_cut(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms, fs=fs) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "one")
        await source.broker.offsets.commit("readers", [(ORDERS, 1, None)])
        async with mirroring(mirror, source.kafka, internal_topics=True) as link:
            await until(lambda: {"orders", "__consumer_offsets"} <= mirror.mirroring.cut_topics and end(mirror, ORDERS) == 1)
            with fs.hold("write", ".log", most=1) as gate:
                await source.append(ORDERS, "two")
                await gate.reached()
                # As with a source that cannot be reached, which nobody waits for.
                link.state, link.error = MirrorState.CONNECTING, "no route"
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(link.promote, accept_incomplete=False))
                    await trio.testing.wait_all_tasks_blocked()
                    gate.release()
            assert end(mirror, ORDERS) == 1
            assert [(each.start_offset, each.end_offset) for each in link.set_aside] == [(1, 2)]


async def test_a_promotion_that_is_asked_for_again_returns_the_same(tmp_path: Path) -> None:
    """Whoever got no answer asks again."""
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 0)
            found = []

            async def promote() -> None:
                found.append(await link.promote(accept_incomplete=False))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(promote)
                nursery.start_soon(promote)
            await promote()
            assert found == [found[0]] * 3
            assert found[0].topics == ("orders",)
            assert (link.state, link.error) == (MirrorState.PROMOTED, "")


async def test_a_mirror_that_was_away_for_longer_than_retention_begins_where_the_source_begins(tmp_path: Path) -> None:
    async with serving(tmp_path / "a") as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "one", "two")
        async with mirroring(mirror, source.kafka):
            await until(lambda: end(mirror, ORDERS) == 2)
        await source.append(ORDERS, *map(str, range(8)))
        await source.append(ORDERS, "last")
        await source.broker.logs.delete_records(ORDERS, 10)
        async with mirroring(mirror, source.kafka) as link:
            await until(lambda: end(mirror, ORDERS) == 11)
            assert mirror.reader.snapshot(ORDERS).log_start_offset == 10
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)
            assert not link.set_aside


async def test_a_source_with_logins_is_copied_and_a_wrong_password_is_an_error_of_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_PASSWORD", PASSWORD)
    monkeypatch.setenv("WRONG_PASSWORD", "guess")
    async with (
        serving(tmp_path / "a", **LOGINS) as source,
        running_broker(tmp_path / "b", clock=system_now_ms) as mirror,
    ):
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "one")
        async with mirroring(mirror, source.kafka, user=NAME, password=Secret("variable", "WRONG_PASSWORD")) as link:
            await until(lambda: "refused the login of user" in link.error)
        async with mirroring(mirror, source.kafka, user=NAME, password=Secret("variable", "MIRROR_PASSWORD")):
            await until(lambda: end(mirror, ORDERS) == 1)


async def test_a_source_with_tls_is_copied_and_a_link_without_the_right_certificates_says_why(
    tmp_path: Path, certificates: Certificates
) -> None:
    keys = certificates.server_keys(kafka_security=ListenerSecurity.SSL, kafka_ssl_client_auth=ClientAuth.REQUIRED)
    ca, certificate = {"tls_ca": certificates.ca}, {"tls_cert": certificates.client}
    async with serving(tmp_path / "a", **keys) as source, running_broker(tmp_path / "b", clock=system_now_ms) as mirror:
        await source.broker.topics.create("orders", 1)
        await source.append(ORDERS, "one")
        for wrong, why in (
            ({**certificate, "tls": True}, "CERTIFICATE_VERIFY_FAILED"),
            ({**certificate, "tls_ca": certificates.other_ca}, "CERTIFICATE_VERIFY_FAILED"),
            ({**ca, "tls_cert": certificates.other_client}, "UNKNOWN_CA"),
            (ca, "CERTIFICATE_REQUIRED"),
            ({}, "ended the connection"),
            ({**certificate, "tls_ca": str(tmp_path / "none.pem")}, "none.pem"),
        ):
            async with mirroring(mirror, source.kafka, **wrong) as link:
                await until(lambda link=link: link.error)  # type: ignore[misc]
                assert why in link.error
                assert link.state is MirrorState.CONNECTING
        assert end(mirror, ORDERS) == -1
        async with mirroring(mirror, source.kafka, **ca, **certificate):
            await until(lambda: end(mirror, ORDERS) == 1)
            assert await all_bytes(mirror, ORDERS) == await all_bytes(source.broker, ORDERS)


async def heartbeat(client: KafkaStream, member_epoch: int, *topics: str) -> Any:
    said = {"group_id": GROUP, "member_id": "member", "member_epoch": member_epoch}
    return await client.call(ask("ShareGroupHeartbeat", **said, subscribed_topic_names=list(topics) or None), 1)


async def test_members_of_a_share_group_continue_with_its_states_after_a_promotion(tmp_path: Path) -> None:
    async with serving(tmp_path / "a") as source:
        await source.broker.topics.create("orders", 1)
        topic_id = source.broker.topics.id_of("orders")
        async with serving(tmp_path / "b") as server:
            mirror = server.broker
            async with (
                mirroring(mirror, source.kafka, internal_topics=True) as link,
                connected(source.kafka) as there,
                connected(server.kafka) as here,
            ):
                joined = await heartbeat(there, 0, "orders")
                epoch = (await heartbeat(there, joined.member_epoch)).member_epoch
                member = ShareMember(there, topic_id, "member")
                assert await member.acquired() == []
                await source.append(ORDERS, *map(str, range(10)))
                assert await member.acquired() == [(0, 9, 1)]
                said = [(0, 3, [ACCEPT]), (4, 4, [RELEASE]), (5, 5, [REJECT]), (7, 7, [ACCEPT])]
                assert await member.acknowledge(*said) is ErrorCode.NONE
                await until(lambda: "__share_group_state" in mirror.mirroring.cut_topics)
                assert (await heartbeat(here, epoch)).error_code == ErrorCode.NOT_COORDINATOR
                early = await ShareMember(here, topic_id, "member").ask()
                assert not [each for topic in early.responses for each in topic.partitions if each.acquired_records]
                promotion = await link.promote(accept_incomplete=False)
                assert promotion.has_cut
                again = await heartbeat(here, epoch)
                assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, epoch)
            async with connected(server.kafka) as here:
                member = ShareMember(here, topic_id, "member")
                assert await member.acquired() == [(4, 4, 2), (6, 6, 1), (8, 9, 1)]
                assert await member.acknowledge((4, 4, [ACCEPT]), (6, 6, [ACCEPT])) is ErrorCode.NONE
                await server.append(ORDERS, "ten")
        async with serving(tmp_path / "b") as server, connected(server.kafka) as here:
            assert (await heartbeat(here, epoch)).error_code == ErrorCode.NONE
            assert [first for first, *_ in await ShareMember(here, topic_id, "member").acquired()] == [8, 10]
