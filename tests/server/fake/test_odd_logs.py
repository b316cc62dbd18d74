"""Holes, batches without records, lost ranges, old formats, generated and discarded records, as librdkafka and readers of the
log see them, also after a restart and a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import triolog
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from triolog.protocol.errors import InvalidRequestError, RequestError
from triolog.protocol.records.batch import check_batch, iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import TopicPartition as Partition
from triolog.server.broker import FetchPartition
from triolog.server.embedded import MEMORY, BlockingBroker, EmbeddedBroker

TOPIC: Final = "orders"
PLACE: Final = Partition(TOPIC, 0)
PATIENCE_S: Final = 30.0
Life = Callable[[BlockingBroker], None]


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, for_tests=True, kafka="127.0.0.1:0", topics=[TOPIC]) as broker:
        yield broker


def consumed(
    broker: BlockingBroker, count: int, *, until: int | None = None, start: int | None = None, **config: Any
) -> list[tuple[int, Any]]:
    """Offsets and values, or codes of errors, that librdkafka reads from the log start of partition 0, or from `start`; with
    `until`, once it is at that offset, too. For OFFSET_BEGINNING librdkafka waits half a second."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "unused",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.wait.max.ms": 20,
        "fetch.error.backoff.ms": 1,
        "log_level": 0,
        **config,
    }
    found: list[tuple[int, Any]] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, broker.log(TOPIC).start_offsets()[0] if start is None else start)])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count or (until is not None and consumer.position([TopicPartition(TOPIC, 0)])[0].offset < until):
            assert time.monotonic() < deadline, found
            if (message := consumer.poll(0.05)) is not None:
                error = message.error()
                found.append((message.offset(), message.value() if error is None else error.code()))
    return found


def restarted(broker: BlockingBroker) -> None:
    broker.restart()


def crashed(broker: BlockingBroker) -> None:
    broker.crash()
    broker.restart()


def untouched(broker: BlockingBroker) -> None:
    """It goes on."""


lives = pytest.mark.parametrize("live", [untouched, restarted, crashed])


@lives
def test_consumers_pass_a_hole_and_a_batch_without_records(broker: BlockingBroker, live: Life) -> None:
    log = broker.log(TOPIC)
    log.append(["a"])
    assert log.skip_offsets(5) == 6
    log.append(["b"])
    assert log.append_empty_batch(3) == 7
    log.append(["c"])
    live(broker)
    assert consumed(broker, 3) == [(0, b"a"), (6, b"b"), (10, b"c")]
    assert [each.offset for each in log.fetch()] == [0, 6, 10]
    assert (log.start_offsets(), log.end_offsets()) == ({0: 0}, {0: 11})
    broker.groups.commit("billing", {PLACE: 1})
    assert broker.groups.lag("billing", TOPIC) == 2


@lives
@pytest.mark.parametrize("call", ["skip_offsets", "append_empty_batch", "lose_offsets"])
def test_a_log_may_begin_and_end_with_offsets_without_records(broker: BlockingBroker, live: Life, call: str) -> None:
    log = broker.log(TOPIC)
    getattr(log, call)(5)
    live(broker)
    assert log.end_offsets() == {0: 5}
    log.append(["after"])
    live(broker)
    assert consumed(broker, 1) == [(5, b"after")]
    assert log.fetch(3)[0].offset == 5


async def test_a_batch_without_records_is_served_as_it_is(nursery: object) -> None:
    async with triolog.open(MEMORY, topics=[TOPIC]) as broker:
        await broker.log(TOPIC).append_empty_batch(3)
        [(header, batch)] = iter_batches(await fetched(broker, 0))
        check_batch(batch, header)
        assert (header.records_count, header.base_offset, header.last_offset, len(batch)) == (0, 0, 2, 61)


async def fetched(broker: EmbeddedBroker, offset: int, max_bytes: int = 2**20) -> bytes:
    [answer] = await broker.core.reader.fetch([FetchPartition(PLACE, offset, max_bytes)], max_bytes=max_bytes)
    assert answer.fetched is not None, answer.error
    return bytes(answer.fetched.records)


@lives
def test_a_lost_range_is_skipped_or_refused_as_the_policy_says(broker: BlockingBroker, live: Life) -> None:
    log = broker.log(TOPIC)
    log.append(["a"])
    assert log.lose_offsets(4) == 1
    log.append(["b"])
    live(broker)
    assert consumed(broker, 2) == [(0, b"a"), (5, b"b")]
    broker.alter_config(TOPIC, {"gap.policy": "refuse"})
    assert consumed(broker, 2) == [(0, b"a"), (1, KafkaError.INVALID_MSG)]


# ---- old formats -----------------------------------------------------------------------------------------------------------


def test_a_consumer_gets_old_messages_and_other_readers_batches(broker: BlockingBroker) -> None:
    log = broker.log(TOPIC)
    log.append(["new"])
    assert log.append_old_format(["one", (1_700_000_000_000, b"key", None, ())]) == 1
    assert log.append_old_format(["zero"], magic=0) == 3
    log.append(["newer"])
    values = [b"new", b"one", None, b"zero", b"newer"]
    assert consumed(broker, 5) == list(enumerate(values))
    assert log.values() == values
    broker.restart()
    magics: list[int] = []

    async def note(asked: Any) -> Any:
        response = await asked.serve()
        magics.extend(each.records[16] for topic in response.responses for each in topic.partitions if each.records)
        return response

    broker.faults.add("Fetch", intercept=note)
    assert consumed(broker, 1, start=3)[0] == (3, b"zero")
    assert magics[0] == 0


def test_a_small_fetch_makes_progress_over_old_messages(broker: BlockingBroker) -> None:
    log = broker.log(TOPIC)
    for number in range(4):
        log.append([str(number) * 400] * 2)
        log.append_old_format([str(number) * 400] * 2, magic=number % 2)
    assert [offset for offset, _ in consumed(broker, 16, **{"fetch.message.max.bytes": 1000})] == list(range(16))


def test_the_topic_that_follows_under_the_name_has_no_old_messages(broker: BlockingBroker) -> None:
    broker.log(TOPIC).append_old_format(["old"])
    broker.delete_topic(TOPIC)
    broker.create_topic(TOPIC)
    broker.log(TOPIC).append(["new"])
    [old] = broker.call_now(lambda: list(broker._target.life.old_formats))
    assert old[0] != broker.call_now(lambda: broker._target.core.topics.id_of(TOPIC))
    assert consumed(broker, 1) == [(0, b"new")]


# ---- generated records -----------------------------------------------------------------------------------------------------


@lives
def test_generated_records_come_between_real_ones_and_take_no_space(broker: BlockingBroker, live: Life) -> None:
    log = broker.log(TOPIC)
    log.append(["before"])
    log.generate(5_000, value_bytes=100, seed=7)
    log.append(["after"])
    live(broker)
    found = consumed(broker, 5_002)
    assert [offset for offset, _ in found] == list(range(5_002))
    assert (found[0][1], found[-1][1], {len(value) for _, value in found[1:-1]}) == (b"before", b"after", {100})
    assert found == [(each.offset, each.value) for each in log.fetch()]
    assert sum(file.stat().st_size for file in Path(broker.path).glob(f"{TOPIC}-0/*.log")) < 200
    assert consumed(broker, 2, start=5_000) == found[-2:]


def test_a_seed_gives_the_same_records_and_another_one_others(broker: BlockingBroker) -> None:
    for topic, seed in (("a", 1), ("b", 1), ("c", 2)):
        broker.create_topic(topic, 2)
        broker.log(topic).generate(3, value_bytes=8, seed=seed)
    first, again, other = (broker.log(topic).values() for topic in "abc")
    assert first == again
    assert len({*first, *other}) == 12


async def test_reads_from_any_offset_of_any_size_find_the_same_records(nursery: object) -> None:
    random = Random(5)
    async with triolog.open(MEMORY, topics=[TOPIC]) as broker:
        log = broker.log(TOPIC)
        await log.skip_offsets(3)
        await log.generate(2_500, value_bytes=300)
        all_records = {each.offset: each for each in await log.fetch()}
        assert list(all_records) == list(range(3, 2_503))
        for _ in range(30):
            at = offset = random.randrange(3, 2_503)
            while at < 2_503:
                data = await fetched(broker, at, random.choice([0, 1, 1_000, 70_000, 2**20]))
                batches = list(iter_batches(data))
                assert sum(len(batch) for _, batch in batches) == len(data) > 0
                for header, batch in batches:
                    check_batch(batch, header)
                    for record in iter_records(batch, header):
                        assert record == all_records[record.offset]
                assert batches[0][0].base_offset <= at <= batches[0][0].last_offset
                at = batches[-1][0].next_offset
            assert at == 2_503, offset


async def test_a_reader_that_waits_for_many_bytes_gets_them_at_once(autojump_clock: object) -> None:
    async with triolog.open(MEMORY, topics=[TOPIC]) as broker:
        await broker.log(TOPIC).generate(10**9, value_bytes=1000)
        asked = [FetchPartition(PLACE, 10**9 - 70, 2**26)]
        [answer] = await broker.core.reader.fetch(asked, max_bytes=2**26, min_bytes=2**25, max_wait_s=3600)
        assert answer.fetched is not None
        assert list(iter_batches(answer.fetched.records))[-1][0].next_offset == 10**9


def test_only_one_range_of_a_partition_is_generated_and_none_in_a_transaction(broker: BlockingBroker) -> None:
    log = broker.log(TOPIC)
    with closing_transaction(broker) as producer:
        producer.produce(TOPIC, b"open")
        producer.flush(PATIENCE_S)
        with pytest.raises(InvalidRequestError, match="orders-0 has an open transaction"):
            log.generate(5)
    log.generate(5)
    for call in (lambda: log.generate(5), log.discard):
        with pytest.raises(InvalidRequestError, match="orders-0 already discards or generates records"):
            call()
    assert log.end_offsets() == {0: 7}


class closing_transaction:
    """A transactional producer of librdkafka whose transaction is aborted at the end."""

    def __init__(self, broker: BlockingBroker) -> None:
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t", "log_level": 0})

    def __enter__(self) -> Producer:
        self.producer.init_transactions(PATIENCE_S)
        self.producer.begin_transaction()
        return self.producer

    def __exit__(self, *error: object) -> None:
        self.producer.abort_transaction(PATIENCE_S)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: log.skip_offsets(0), "count is 0, expected 1 to"),
        (lambda log: log.skip_offsets(2**60), "expected 1 to 1099511627776"),
        (lambda log: log.append_empty_batch(2**31), "expected 1 to 2147483647"),
        (lambda log: log.lose_offsets(-1), "count is -1"),
        (lambda log: log.generate(1, value_bytes=2**30), "value_bytes is 1073741824, expected 0 to 8388608"),
        (lambda log: log.append_old_format(["x"], magic=2), "magic is 2, expected 0 or 1"),
        (lambda log: log.append_old_format([(None, None, b"x", (("h", b""),))]), "records have headers"),
        (lambda log: log.skip_offsets(partition=7), "has partitions 0 to 0, not 7"),
        (lambda log: log.discard(partition=7), "has partitions 0 to 0, not 7"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(broker: BlockingBroker, call: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call(broker.log(TOPIC))
    assert broker.log(TOPIC).end_offsets() == {0: 0}


# ---- black holes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_black_hole_acknowledges_and_keeps_nothing(broker: BlockingBroker, durability: str) -> None:
    broker.alter_config(TOPIC, {"durability": durability})
    log = broker.log(TOPIC)
    log.append(["kept"])
    log.discard()
    offsets = produced(broker, 300)
    assert offsets == list(range(1, 301))
    assert log.values() == [b"kept"]
    assert consumed(broker, 1, until=301) == [(0, b"kept")]
    assert sum(file.stat().st_size for file in Path(broker.path).glob(f"{TOPIC}-0/*.log")) < 100
    broker.restart()
    assert produced(broker, 1) == [301]
    assert consumed(broker, 0, start=1, until=302) == []


def produced(broker: BlockingBroker, count: int, **config: Any) -> list[int]:
    offsets: list[int] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0, **config}
    producer = Producer(settings)
    for _ in range(count):
        producer.produce(TOPIC, b"v" * 100, on_delivery=lambda error, message: offsets.append(error or message.offset()))
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def test_a_retry_uses_no_further_offsets_of_a_black_hole(broker: BlockingBroker) -> None:
    broker.log(TOPIC).discard()
    fault = broker.faults.add("Produce", error="REQUEST_TIMED_OUT", applied=True, once=True)
    assert produced(broker, 1, **{"retry.backoff.ms": 1}) == [0]
    assert (fault.fired, broker.log(TOPIC).end_offsets()) == (1, {0: 1})


def test_a_black_hole_checks_what_it_discards(broker: BlockingBroker) -> None:
    broker.log(TOPIC).discard()
    broker.alter_config(TOPIC, {"max.message.bytes": "50"})
    [error] = produced(broker, 1)
    assert isinstance(error, KafkaError)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert broker.log(TOPIC).end_offsets() == {0: 0}


def test_transactions_end_in_a_black_hole_and_in_a_log_beside_it(broker: BlockingBroker) -> None:
    broker.create_topic("beside")
    broker.log(TOPIC).discard()
    with closing_transaction(broker) as producer:
        for commit in (True, False):
            producer.produce(TOPIC, b"v")
            producer.produce("beside", str(commit))
            assert producer.flush(PATIENCE_S) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
            producer.begin_transaction()
    assert broker.log("beside").values() == [b"True"]
    assert consumed(broker, 0, until=4, **{"isolation.level": "read_committed"}) == []
    broker.crash()
    broker.restart()
    assert broker.log(TOPIC).end_offsets() == {0: 0}
    assert broker.log("beside").values() == [b"True"]


def test_a_reset_and_a_new_topic_keep_what_is_sent(broker: BlockingBroker) -> None:
    broker.log(TOPIC).discard()
    broker.delete_topic(TOPIC)
    broker.create_topic(TOPIC)
    broker.log(TOPIC).append(["kept"])
    broker.restart()
    assert broker.log(TOPIC).values() == [b"kept"]
    broker.log(TOPIC).discard()
    broker.reset()
    broker.log(TOPIC).append(["kept"])
    assert broker.log(TOPIC).values() == [b"kept"]


# ---- a committed offset that is gone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "found"), [("earliest", (3, b"3")), ("error", (1, KafkaError._AUTO_OFFSET_RESET))])
def test_a_committed_offset_below_the_log_start_lets_the_consumer_reset(
    broker: BlockingBroker, reset: str, found: tuple[int, Any]
) -> None:
    log = broker.log(TOPIC)
    log.append([str(number) for number in range(5)])
    assert log.delete_records(3) == 3
    broker.groups.commit("billing", {PLACE: 1})
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "auto.offset.reset": reset}
    with closing(Consumer({**settings, "log_level": 0})) as consumer:
        consumer.subscribe([TOPIC])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        assert (message.offset(), message.value() if error is None else error.code()) == found
    assert broker.requests.find("Fetch", error="OFFSET_OUT_OF_RANGE")
