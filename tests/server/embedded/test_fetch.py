"""`fetch` of an embedded broker reads on until there is a record, or the end of what may be read. What is no record is named,
with its place. Clients live on when a broker is reset, copied or forked: no producer id is given to two of them. What an
embedded broker is configured with: every key of `serve`, its defaults or those of tests."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
import triolog
from triolog.protocol.errors import CorruptRecordError, InvalidConfigError, InvalidRecordError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.plain_records import check_records
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import BROKER_KEYS, Address, BrokerConfig
from triolog.server.config.broker_settings import read_settings
from triolog.server.embedded import LOCALHOST, MEMORY, EmbeddedBroker
from triolog.server.embedded.opening import REFUSED, TEST_DEFAULTS, Arguments, broker_config

from tests.support.brokers import PATIENCE_S
from tests.support.logs import START_MS

GOOD = (None, b"k", b"v", ())

WRONG = [
    ("text", "records are str 'text', expected a sequence"),
    (5, "records are int, expected a sequence"),
    (["text"], "record 0: it is str 'text', expected bytes"),
    ([b"v", 5], "record 1: it is int"),
    ([GOOD, (None, b"k", b"v")], "record 1: it is a tuple of 3"),
    ([("now", b"k", b"v", ())], "record 0: its timestamp is str 'now', expected int"),
    ([(None, "k", b"v", ())], "record 0: its key is str 'k', expected bytes"),
    ([(None, b"k", {}, ())], "record 0: its value is dict, expected bytes"),
    ([(None, b"k", b"v", None)], "record 0: its headers are NoneType"),
    ([(None, b"k", b"v", [b"h"])], "record 0: a header is bytes"),
    ([(None, b"k", b"v", [("h", 5)])], r"record 0: a header is \(str 'h', int\)"),
    (["x" * 100], "record 0: it is str 'xxxxxxxxxxxxxxxxxxxx'..., expected bytes"),
]
"""What is given, and what is said."""


async def append_and_commit(broker: EmbeddedBroker, topic: str, records: Any) -> None:
    async with broker.transaction("id") as transaction:
        await transaction.append(topic, records)


@pytest.mark.parametrize("append", [EmbeddedBroker.append, EmbeddedBroker.append_by_key, append_and_commit])
async def test_what_is_no_record_is_named_and_nothing_is_stored(append: Callable[..., Awaitable[Any]]) -> None:
    async with triolog.open(MEMORY, topics={T: 1}, native="127.0.0.1:0") as broker:
        for records, said in WRONG:
            with pytest.raises(TypeError, match=f"^topic(:|,) {said}"):
                await append(broker, T, records)
        with pytest.raises(InvalidRecordError, match="topic, record 1: timestamp -2 is neither"):
            await append(broker, T, [GOOD, (-2, b"k", b"v", ())])
        assert await broker.fetch(T) == []
        await append(broker, T, [GOOD, None, b"v"])


def test_what_is_a_record_or_batches_is_not_complained_about() -> None:
    check_records(T, [GOOD, None, b"", bytearray(b"v"), (-1, None, memoryview(b""), [("h", None), ["h", b"x"]])])
    check_records(T, b"batches")


async def test_batches_that_are_none_are_refused_as_ever() -> None:
    async with triolog.open(MEMORY, topics={T: 1}, native="127.0.0.1:0") as broker:
        with pytest.raises(CorruptRecordError):
            await broker.append(T, b"rubbish")


T = "topic"


async def read_all(broker: EmbeddedBroker, **options: Any) -> list[int]:
    """Offsets, as a program reads that fetches from one after the last record."""
    found: list[int] = []
    while records := await broker.fetch(T, found[-1] + 1 if found else 0, **options):
        found += [record.offset for record in records]
    return found


async def append_in_transaction(broker: EmbeddedBroker, name: str, count: int, *, aborts: bool = False) -> None:
    transaction = broker.transaction(name)
    await transaction.begin()
    await transaction.append(T, [b"x" * 40] * count)
    await (transaction.abort() if aborts else transaction.commit())


@pytest.mark.parametrize("committed_only", [True, False])
async def test_a_page_of_markers_does_not_end_the_partition(committed_only: bool) -> None:
    async with triolog.open(MEMORY) as broker:
        await broker.create_topic(T, config={"segment.bytes": "300"})
        for _ in range(6):
            await append_in_transaction(broker, "till", 3)
        want = [record.offset for record in await broker.log(T).fetch()]
        assert len(want) == 18
        assert await read_all(broker, committed_only=committed_only) == want
        for offset in range(want[-1]):
            assert await broker.fetch(T, offset, committed_only=committed_only)
        assert await broker.fetch(T, want[-1] + 1, committed_only=committed_only) == []


async def test_a_page_of_headers_that_compaction_left_does_not_end_the_partition() -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01"}
    async with triolog.open(MEMORY) as broker:
        await broker.create_topic(T, config=config)
        for _ in range(4):  # an idempotent producer's last batch stays as a header
            transaction = broker.transaction("till")
            await transaction.begin()
            await transaction.append(T, [(None, b"a", b"v" * 100, ())])
            await transaction.commit()
        for number in range(9):
            await broker.append(T, [(None, b"abc"[number % 3 : number % 3 + 1], b"w" * 150, ())])
        await broker.log(T).compact()
        want = [record.offset for record in await broker.log(T).fetch()]
        assert want
        assert await read_all(broker) == want


async def test_records_of_aborted_and_open_transactions_come_only_when_requested() -> None:
    async with triolog.open(MEMORY, topics=[T]) as broker:
        await append_in_transaction(broker, "aborted", 2, aborts=True)
        await broker.append(T, [b"plain"])
        still_open = broker.transaction("open")
        await still_open.begin()
        await still_open.append(T, [b"pending"])
        assert await read_all(broker) == [3]
        assert await read_all(broker, committed_only=False) == [0, 1, 3, 4]
        times = {"start_timestamp": 0}
        assert [each.offset for each in await broker.fetch(T, **times)] == [3]
        assert [each.offset for each in await broker.fetch(T, **times, committed_only=False)] == [0, 1, 3, 4]
        await still_open.commit()
        assert await read_all(broker) == [3, 4]


async def test_a_marker_does_not_end_the_wait_for_a_record() -> None:
    async with triolog.open(MEMORY, topics=[T]) as broker:
        found: list[Any] = []

        async def wait() -> None:
            found.extend(await broker.fetch(T, max_wait_s=PATIENCE_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await append_in_transaction(broker, "till", 1, aborts=True)
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            await broker.append(T, [b"plain"])
        assert [record.value for record in found] == [b"plain"]
        assert await broker.log(T).fetch() == found
        assert broker.core.reader.snapshot(TopicPartition(T, 0)).high_watermark == 3


ORDERS = TopicPartition("orders", 0)


async def new_ids(broker: EmbeddedBroker) -> list[int]:
    """Of two idempotent producers and one with a transactional id that nobody had."""
    names = (None, None, uuid.uuid4().hex)
    return [(await broker.core.producers.init(name, 60_000))[0] for name in names]


async def append(broker: EmbeddedBroker, producer_id: int, text: bytes, sequence: int = 0) -> None:
    batch = build_batch([(START_MS, None, text, ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    await broker.core.writer.append(ORDERS, batch)


async def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return await broker.log("orders").values()


async def test_a_producer_that_lives_through_a_reset_shares_its_id_with_no_new_one() -> None:
    """Its next record and the first one of a new producer would be the same batch to the log."""
    async with triolog.open(MEMORY, topics=["orders"], native="127.0.0.1:0") as broker:
        before = await new_ids(broker)
        await append(broker, before[0], b"before")
        for _ in range(2):
            await broker.reset()
            await append(broker, before[0], b"lives on")
            after = await new_ids(broker)
            assert len({*before, *after}) == len(before) + len(after)
            await append(broker, after[0], b"new")
            assert await values(broker) == [b"lives on", b"new"]
            before += after


async def test_a_copy_and_a_fork_give_out_ids_of_their_own(tmp_path: Path) -> None:
    seen: list[int] = []
    async with triolog.open(MEMORY, topics=["orders"], native="127.0.0.1:0") as broker:
        await broker.snapshot(tmp_path / "early")
        seen += await new_ids(broker)
        await broker.snapshot(tmp_path / "late")
        seen += await new_ids(broker)
        async with broker.fork() as fork, fork.fork() as deeper:
            seen += [*await new_ids(fork), *await new_ids(deeper)]
    for name in ("early", "late"):
        async with triolog.open(tmp_path / name, native="127.0.0.1:0") as copy:
            seen += await new_ids(copy)
    assert len(set(seen)) == len(seen)


NOT_SHOWN: Final[dict[str, Any]] = {
    "kafka": "127.0.0.1:0",
    "kafka_advertised": "127.0.0.1:9092",
    "metrics": "127.0.0.1:0",
    "native": "127.0.0.1:0",
    "schema_registry": "127.0.0.1:0",
    "node_id": 7,
    "cluster_id": "abc",
    "max_memory_bytes": 2**30,
    "metrics_token_file": "token",
    "ssl_certificate_file": "certificate",
    "ssl_key_file": "key",
    "ssl_client_ca_file": "ca",
    "sasl_users_file": "users",
    "sasl_oauthbearer_jwks_endpoint_url": "file:///keys",
    "sasl_oauthbearer_expected_issuer": "issuer",
    "super_users": "User:alice;User:bob",
    "audit_file": "audit",
}
"""Values of keys whose default says nothing."""


async def config_of(path: Path | str | None, **arguments: Any) -> BrokerConfig:
    async with triolog.open(path, **arguments) as broker:
        return broker.core.config


def served(path: Path, **keys: Any) -> BrokerConfig:
    """What `triolog serve` would run with."""
    return BrokerConfig(**read_settings(None, {}, {"data_dirs": str(path), **keys}))


async def test_a_broker_with_a_path_has_the_defaults_of_serve(tmp_path: Path) -> None:
    assert await config_of(tmp_path) == served(tmp_path)
    assert await config_of(tmp_path, for_tests=False) == served(tmp_path)


async def test_without_one_it_has_those_of_tests_and_which_it_has_can_be_said(tmp_path: Path) -> None:
    for path, said, expected in (
        (None, {}, ("os", False)),
        (MEMORY, {}, ("os", False)),
        (tmp_path, {"for_tests": True}, ("fsync", True)),
    ):
        config = await config_of(path, **said)
        assert {name: getattr(config, name) for name in TEST_DEFAULTS} == TEST_DEFAULTS
        assert (str(config.topic_defaults.durability), config.durable) == expected
    config = await config_of(None, for_tests=False)
    assert (config.lenient, config.group_initial_rebalance_delay_ms, config.disk_reserve_bytes) == (False, 3000, -1)
    assert str(config.topic_defaults.durability) == "os"


def value_of(name: str) -> Any:
    return NOT_SHOWN.get(name, BROKER_KEYS[name].default_text)


async def test_it_takes_every_key_of_serve_as_serve_takes_it(tmp_path: Path) -> None:
    """Files and addresses that are named would be opened: only the configuration is compared."""
    absent: Any = dict.fromkeys(("native", "kafka", "metrics", "durability", "lenient"))
    nothing = Arguments(**absent, config={}, users={}, security={}, telemetry=False, oauth=False)
    for name in BROKER_KEYS.keys() - REFUSED.keys():
        said = {name: value_of(name)}
        if name == "sasl_oauthbearer_jwks_endpoint_url":
            said["sasl_enabled_mechanisms"] = "OAUTHBEARER"
        found = broker_config(str(tmp_path), said, nothing, is_lasting=True, for_tests=False)
        assert found == served(tmp_path, **said), name


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_key_without_a_meaning_in_a_program_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"settings: {name} has no meaning in an embedded broker: "):
        triolog.blocking.open(tmp_path / "data", settings={name: "x"}, native="127.0.0.1:0").start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings", [{"colour": "blue"}, {"max_connections": 0}, {"lenient": "maybe"}, {"durability": "soon"}, {"kafka": "nowhere"}]
)
def test_what_serve_refuses_is_refused_in_its_words(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError) as of_serve:
        read_settings(None, {}, settings)
    with pytest.raises(InvalidConfigError) as found:
        triolog.blocking.open(tmp_path / "data", settings=settings, native="127.0.0.1:0").start()
    assert found.value.message[:900] == of_serve.value.message.replace("the command line", "settings")[:900]
    assert list(tmp_path.iterdir()) == []


async def test_arguments_go_before_settings(tmp_path: Path) -> None:
    settings = {
        "durability": "group:5",
        "lenient": False,
        "num_partitions": 3,
        "topic_defaults": {"retention.ms": 1000, "segment": {"bytes": 4096}},
    }
    config = await config_of(tmp_path, settings=settings, lenient=True, durability="os", config={"retention.ms": "-1"})
    assert (config.lenient, config.num_partitions) == (True, 3)
    defaults = config.topic_defaults
    assert (str(defaults.durability), defaults.retention_ms, defaults.segment_bytes) == ("os", -1, 4096)


async def test_addresses_may_come_from_settings(tmp_path: Path) -> None:
    keys = dict.fromkeys(("native", "kafka"), "127.0.0.1:0")
    async with triolog.open(tmp_path, settings=keys) as broker:
        assert broker.native is not None
        assert broker.kafka is not None
    with pytest.raises(InvalidConfigError, match=r"127\.0\.0\.1:0 in settings, 127\.0\.0\.1:1 as"):
        async with triolog.open(tmp_path, settings=keys, native=Address("127.0.0.1", 1)):
            pass


async def test_an_address_that_other_machines_reach_is_refused_as_serve_refuses_it(tmp_path: Path) -> None:
    for listener in ({"native": Address("0.0.0.0", 0)}, {"metrics": Address("0.0.0.0", 0)}):
        with pytest.raises(InvalidConfigError, match=f"{next(iter(listener))} 0.0.0.0:0: other machines can reach"):
            async with triolog.open(tmp_path, **listener):  # type: ignore[arg-type]
                pass


async def test_it_is_told_over_http_how_things_stand() -> None:
    async with triolog.open(metrics=LOCALHOST, topics=["t"], native="127.0.0.1:0") as broker:
        assert broker.metrics is not None
        stream = await trio.open_tcp_stream(*broker.metrics)
        async with stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            told = b"".join([each async for each in stream])
        assert told.startswith(b"HTTP/1.1 200")
        assert b"triolog_" in told
    async with triolog.open(native="127.0.0.1:0") as broker:
        assert broker.metrics is None


def test_the_configuration_of_a_fork_has_no_port_of_the_original() -> None:
    with triolog.blocking.open(metrics=LOCALHOST, native="127.0.0.1:0") as broker, broker.fork() as fork:
        assert (fork.metrics, fork._target.core.config.metrics) == (None, None)
