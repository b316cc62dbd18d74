"""`/metrics`, `/livez` and `/readyz`: over HTTP from a broker that runs, and what a scrape says, also of wear and of gaps."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from triolog.protocol.types import TopicPartition
from triolog.server import broker as broker_api
from triolog.server.broker import Acknowledgement, AcquireMode, Broker, DirectoryWear, FetchPartition, Rates, statistics
from triolog.server.config.broker_config import Address
from triolog.server.figures import table
from triolog.server.figures.prometheus import collected, families, scrape
from triolog.server.listeners.http.health import Health
from triolog.server.listeners.http.server import http_listener
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.system.block_devices import BlockDevice, FlashHealth
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect

from tests.support.brokers import LARGE, PARTITION, TOPIC, actor_of, one_partition, running_broker
from tests.support.damaged_batches import damage_batch
from tests.support.logs import START_MS

LOCALHOST = Address("127.0.0.1", 0)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def get(address: Address, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        with trio.fail_after(30):
            while data := await stream.receive_some(65536):
                answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def parsed(text: str) -> Samples:
    """Every sample of a scrape, by name and labels, as Prometheus reads it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


@asynccontextmanager
async def answering(health: Health) -> AsyncIterator[Address]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(http_listener(LOCALHOST, health.answer).run)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def observed(broker: Broker) -> AsyncIterator[tuple[Address, Address]]:
    """A broker's native listener, and the HTTP listener that tells of it."""
    health, listeners = Health(), Listeners(broker)
    async with trio.open_nursery() as nursery, answering(health) as http:
        addresses = await listeners.start(nursery, Addresses(native=LOCALHOST))
        health.serving(broker, listeners.admission.protocols)
        yield addresses.native, http
        nursery.cancel_scope.cancel()


async def test_a_scrape_tells_what_a_client_did(tmp_path: Path) -> None:
    async with one_partition(tmp_path, durability="fsync") as broker, observed(broker) as (native, http):
        async with connect(*native) as client:
            admin = Admin(client)
            await broker.writer.append(PARTITION, [(None, None, b"v" * 1000, ())] * 3)
            await broker.reader.fetch([FetchPartition(PARTITION, 0, LARGE)], max_bytes=LARGE)
            await admin.commit_group_offsets("g", {PARTITION: 1})
            with pytest.raises(Exception, match="missing"):
                await admin.offsets_for_times({TopicPartition("missing", 0): -1})
            status, text = await get(http, "/metrics")
        assert status == 200
        samples = parsed(text)
        partition = {"topic": TOPIC, "partition": "0"}
        commits = {"protocol": "native", "api": "commit_offsets"}
        lookups = {"protocol": "native", "api": "offsets_for_times", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert value(samples, "triolog_request_seconds_count", **commits) == 1
        assert value(samples, "triolog_request_seconds_bucket", **commits, le="+Inf") == 1
        assert value(samples, "triolog_request_errors_total", **lookups) == 1
        assert value(samples, "triolog_connections", protocol="native") == 1
        assert value(samples, "triolog_received_bytes_total", protocol="native") > 100
        assert value(samples, "triolog_group_lag", group="g", **partition) == 2
        assert value(samples, "triolog_high_watermark", **partition) == 3
        assert value(samples, "triolog_partition_log_bytes", **partition) == actor_of(broker).log.size_in_bytes
        assert value(samples, "triolog_topic_fetched_bytes_total", topic=TOPIC) > 3000
        assert value(samples, "triolog_loss_window_seconds") == 0
        assert value(samples, "triolog_partition_loss_window_seconds", **partition) == 0
        assert value(samples, "triolog_loss_window_longest_seconds") == 0
        assert value(samples, "triolog_sync_seconds_count") >= 2
        assert value(samples, "triolog_directory_in_service", directory=str(tmp_path)) == 1
        assert value(samples, "triolog_directory_free_bytes", directory=str(tmp_path)) > 0
        assert value(samples, "triolog_left_out", what="lags") == 0
        assert value(samples, "process_open_fds") > 0


async def test_fault_rules_are_told_by_number(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        samples = parsed((await scrape(broker, {}, lambda: [("1", 7)])).decode())
        assert value(samples, "triolog_faults_fired_total", rule="1") == 7


async def test_tasks_of_the_event_loop_are_counted(tmp_path: Path) -> None:
    async def tasks() -> float:
        return value(parsed((await scrape(broker, {})).decode()), "triolog_tasks")

    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        before = await tasks()
        for _ in range(3):
            nursery.start_soon(trio.sleep_forever)
        assert await tasks() == before + 3
        nursery.cancel_scope.cancel()


async def test_what_was_above_a_quota_is_told_by_quota(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        quotas = broker.security.quotas
        quotas.replace({(("user", None),): {"producer_byte_rate": 10.0}})
        assert quotas.use("producer_byte_rate", "u", "c", 200.0, 0.0) == 10.0
        samples = parsed((await scrape(broker, {})).decode())
    assert value(samples, "triolog_quota_throttled_total", quota="producer_byte_rate") == 1
    assert value(samples, "triolog_quota_throttle_seconds_total", quota="producer_byte_rate") == 10


async def test_the_number_of_series_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_TOPICS", 3)
    monkeypatch.setattr(statistics, "MAX_PARTITIONS", 5)
    monkeypatch.setattr(statistics, "MAX_LAGS", 4)
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("a", 10)
        few = parsed((await scrape(broker, {})).decode())
        for number in range(8):
            await broker.topics.create(f"t{number}", 10)
            for group in ("g", "h"):
                await broker.offsets.commit(group, [(TopicPartition(f"t{number}", 0), 0, None)])
        many = parsed((await scrape(broker, {})).decode())
        assert value(many, "triolog_partitions") == 91
        assert value(many, "triolog_left_out", what="partitions") == 86
        assert value(many, "triolog_left_out", what="topics") == 7
        assert value(many, "triolog_left_out", what="lags") == 12
        # Two more topics of 6 series, 4 lags of 2, 3 rates that cannot be told in the first second, 3 of a new account.
        assert len(many) <= len(few) + 2 * 6 + 4 * 2 + 3 + 3


async def test_a_scrape_of_as_much_as_may_be_told_is_cheap(tmp_path: Path) -> None:
    """Prints with -s what a scrape of 100 partitions costs in processor time, in all threads."""
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("a", 100)
        begin = process_time()
        text = await scrape(broker, {})
        seconds = process_time() - begin
        print(f"a scrape of 100 partitions costs {seconds * 1000:.0f} ms, {len(text)} bytes")  # noqa: T201 - with -s
        assert seconds < 2


async def test_a_server_is_ready_between_its_recovery_and_its_stop(tmp_path: Path) -> None:
    health = Health()
    async with answering(health) as http:
        assert await get(http, "/livez") == await get(http, "/healthz") == (200, "alive\n")
        assert await get(http, "/readyz") == (503, "the server is starting\n")
        health.progress = broker_api.StartProgress(logs=3, logs_done=1, scan_bytes=1000, scanned_bytes=10)
        recovering = "the server is recovering: 1 of 3 logs, 10 of 1000 bytes scanned\n"
        assert await get(http, "/readyz") == (503, recovering)
        assert await get(http, "/metrics") == (503, recovering)
        async with running_broker(tmp_path) as broker:
            health.serving(broker, {})
            assert await get(http, "/readyz") == (200, "ready\n")
            assert await get(http, "/readyz", "HEAD") == (200, "")
            health.stopping()
            assert await get(http, "/readyz") == (503, "the server is stopping\n")
        health.stopped()
        assert await get(http, "/livez") == (200, "alive\n")
        assert await get(http, "/metrics") == (503, "the server has stopped\n")


async def test_a_server_with_a_directory_out_of_service_is_not_ready(tmp_path: Path) -> None:
    health = Health()
    async with running_broker(tmp_path / "a", tmp_path / "b") as broker, answering(health) as http:
        health.serving(broker, {})
        directories = broker._manager.log_directories
        directories.fail(directories.live[0], OSError(errno.EIO, "the device is gone"))
        status, text = await get(http, "/readyz")
        assert (status, text.count("\n")) == (503, 1)
        assert text.startswith(f"log directory {tmp_path / 'a'} is out of service: ")
        assert "the device is gone" in text
        samples = parsed((await get(http, "/metrics"))[1])
        assert value(samples, "triolog_directory_in_service", directory=str(tmp_path / "a")) == 0


async def test_other_paths_and_methods_are_refused() -> None:
    async with answering(Health()) as http:
        assert (await get(http, "/"))[0] == 404
        assert (await get(http, "/metrics", "POST"))[0] == 405


async def test_the_share_groups_with_most_in_flight_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_SHARE_GROUPS", 1)
    async with one_partition(tmp_path) as broker:
        broker.shares.config_of = lambda _: broker_api.ShareConfig(offset_reset=broker_api.OffsetReset.EARLIEST)
        await broker.writer.append(PARTITION, [(None, None, b"value", ())] * 10)
        for group, count in (("few", 1), ("many", 5)):
            key = broker_api.ShareKey(group, broker.topics.id_of(TOPIC), 0)
            await broker.shares.initialize(*key)
            fetch = broker_api.ShareFetch(
                group_id=group,
                member_id="m",
                partitions=[key],
                min_bytes=1,
                max_bytes=2**20,
                max_records=count,
                batch_size=count,
                mode=AcquireMode.RECORD_LIMIT,
            )
            await broker.share_fetches.take(fetch, is_last=True)
        await broker.shares.acknowledge(key, "m", [Acknowledgement(0, 1, [1])])
        samples = parsed((await scrape(broker, {})).decode())
        assert value(samples, "triolog_share_records_total", outcome="acquired") == 6
        assert value(samples, "triolog_share_records_total", outcome="accepted") == 2
        assert value(samples, "triolog_share_in_flight") == 4
        assert value(samples, "triolog_share_group_in_flight", group="many") == 3
        assert not [each for each in samples if "few" in str(each)]


UNKNOWN = DirectoryWear(
    path="/memory",
    device=None,
    disk_written_bytes=None,
    lifetime_written_bytes=None,
    health=FlashHealth(),
    recent=Rates(),
    days_left=None,
)
KNOWN = DirectoryWear(
    path="/data",
    device=BlockDevice("mmcblk0p2", ("mmcblk0",)),
    disk_written_bytes=5000,
    lifetime_written_bytes=9000,
    health=FlashHealth(life_used_percent=20, pre_eol="warning"),
    recent=Rates(written_per_s=3.0, written_per_appended=4.5, full_in_s=60.0),
    days_left=2.0,
)


WEAR_METRICS = ("triolog_process_written", "triolog_process_bytes_per", "triolog_disk_", "triolog_directory_full")
NOT_OF_WEAR = ("triolog_disk_hops", "triolog_disk_writes_at_once")


async def worn(path: Path, process: int | None, rates: Rates, *directories: DirectoryWear) -> dict[str, Any]:
    """Values by labels, by name."""
    wear = broker_api.WearStatistics(
        process_written_bytes=process, process=rates, longest_unsynced_ms=0.0, directories=directories
    )
    async with running_broker(path) as broker:
        told = await collected(broker, {})
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in families(attrs.evolve(told, broker=attrs.evolve(told.broker, wear=wear)))
        if family.name.startswith(WEAR_METRICS) and family.name not in NOT_OF_WEAR
    }


async def test_what_is_known_is_told_by_directory(tmp_path: Path) -> None:
    assert await worn(tmp_path, 700, Rates(written_per_appended=1.5), KNOWN, UNKNOWN) == {
        "triolog_process_written_bytes": {(): 700},
        "triolog_process_bytes_per_appended_byte": {(): 1.5},
        "triolog_disk_written_bytes": {("/data", "mmcblk0"): 5000},
        "triolog_disk_bytes_per_appended_byte": {("/data",): 4.5},
        "triolog_disk_life_used_ratio": {("/data",): 0.2},
        "triolog_disk_seconds_left": {("/data",): 2 * 86_400},
        "triolog_directory_full_in_seconds": {("/data",): 60},
        "triolog_disk_pre_eol": {("/data", "warning"): 1},
    }


async def test_what_is_not_known_has_no_sample(tmp_path: Path) -> None:
    assert set(map(len, (await worn(tmp_path, None, Rates(), UNKNOWN)).values())) == {0}


GAP_METRICS = ("triolog_gaps", "triolog_gap_records", "triolog_gaps_not_accepted", "triolog_gap_passes", "triolog_gap_refusals")


async def gaps_told(broker: Broker) -> dict[str, dict[tuple[str, ...], float]]:
    """By name and labels, without what has no sample."""
    told = [each for each in families(await collected(broker, {})) if "gap" in each.name]
    assert {family.name for family in told} == {*GAP_METRICS, "triolog_group_gap_passes"}
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples if "_created" not in sample.name}
        for family in told
        if family.samples
    }


async def test_a_scrape_tells_what_is_missing_and_who_goes_on_behind_it(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        assert await gaps_told(broker) == {}, "without damage there is nothing to tell"
        for _ in range(3):
            await broker.writer.append(PARTITION, [(START_MS, None, b"value", ())] * 3)
    damage_batch(tmp_path, f"{TOPIC}-0", 1)
    async with one_partition(tmp_path) as broker:
        for policy in ("skip", "refuse"):
            await broker.topics.alter_configs(TOPIC, {"gap.policy": policy})
            for client in ("a", "b", "a"):
                answers = await broker.reader.fetch([FetchPartition(PARTITION, 3, LARGE)], max_bytes=LARGE)
                broker_api.note_gaps(broker.gaps.passes, client, "127.0.0.1", answers)
        for offset in (3, 9):
            await broker.offsets.commit("g", [(PARTITION, offset, None)])
        by_topic = dict(zip(GAP_METRICS, (1.0, 3.0, 1.0, 2.0, 2.0), strict=True))
        groups = {"triolog_group_gap_passes": {("g", TOPIC): 1.0}}
        assert await gaps_told(broker) == {name: {(TOPIC,): value} for name, value in by_topic.items()} | groups
        await broker.gaps.accept(PARTITION, 3)
        assert (await gaps_told(broker))["triolog_gaps_not_accepted"] == {(TOPIC,): 0.0}
