"""Streams groups (KIP-1071): an application of Kafka Streams counts words; instances come and go, it and the server are
killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from triolog.server.control.ports import Ports
from triolog.server.embedded import MEMORY, BlockingBroker, EmbeddedBroker, open_broker
from triolog.server.settings.broker_config import Address

from tests.clients import external_programs
from tests.clients.driver import DEADLINE_S
from tests.clients.external_programs import STREAMS_VERSION, ProgramUnavailableError
from tests.clients.sigkill_loads import PATIENT
from tests.clients.streams_application import APPLICATION, COUNTS, EXACTLY_ONCE, WORDS, WordCount
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder, ServerProcess

pytestmark = pytest.mark.timeout(900)  # the first test fetches Kafka Streams

PARTITIONS: Final = 4
SESSION_S: Final = 45
VOCABULARY: Final = [f"word{number}" for number in range(20)]
QUICK: Final = {
    "TRIOLOG_LENIENT": "true",
    "TRIOLOG_GROUP_STREAMS_HEARTBEAT_INTERVAL_MS": "200",
    "TRIOLOG_GROUP_STREAMS_SESSION_TIMEOUT_MS": "4000",
    "TRIOLOG_GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS": "0",
}


@pytest.fixture(scope="module", params=[STREAMS_VERSION, pytest.param("4.4.0", marks=pytest.mark.full)])
def program(request: pytest.FixtureRequest) -> Sequence[str]:
    try:
        return external_programs.streams(request.param)
    except ProgramUnavailableError as exc:
        external_programs.unavailable(str(exc))


async def counted(broker: EmbeddedBroker, line: str, expected: Counter[str]) -> None:
    """Feed a line, and wait until each of its words has its count."""
    expected.update(line.split())
    await broker.append(WORDS, [line.encode()], partition=sum(expected.values()) % PARTITIONS)
    for word in set(line.split()):
        wanted = word.encode(), str(expected[word]).encode()
        await broker.log(COUNTS).wait_for(where=lambda record, wanted=wanted: (record.key, record.value) == wanted)


def workers(broker: EmbeddedBroker) -> int:
    """How many members have something to do."""
    return sum(bool(tasks.active) for tasks in broker.streams_groups.assignments(APPLICATION).values())


async def test_instances_come_and_go_and_every_word_is_counted(program: Sequence[str], tmp_path: Path) -> None:
    rng, expected = random.Random(7), Counter[str]()
    topics = {WORDS: PARTITIONS, COUNTS: 1}
    async with open_broker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics=topics) as broker:
        start = partial(WordCount.start, program, broker.bootstrap_servers, tmp_path)
        with ExitStack() as instances:

            async def started(number: int) -> WordCount:
                instance = instances.enter_context(start(number=number))
                await trio.to_thread.run_sync(instance.wait_running)
                return instance

            async def feed() -> None:
                await counted(broker, " ".join(rng.choices(VOCABULARY, k=10)), expected)

            first = await started(0)
            await feed()
            await started(1)
            with trio.fail_after(DEADLINE_S):
                while workers(broker) < 2:
                    await feed()
            await feed()
            await trio.to_thread.run_sync(first.stop)
            await feed()
            with trio.fail_after(DEADLINE_S):
                while workers(broker) != 1:
                    await feed()
            await broker.streams_groups.wait_done(APPLICATION, timeout_s=DEADLINE_S)
            told = await broker.streams_groups.wait_stable(APPLICATION, timeout_s=DEADLINE_S)
        [member] = told.members
        assert member.endpoint == ("instance-1", 1)
        names = {topic.name for part in told.subtopologies for topic in part.state_changelog_topics}
        assert names == {f"{APPLICATION}-counted-changelog"}
        assert names <= set(broker.topics())


@pytest.mark.full  # in the quick suite members that speak the protocol by hand are waited for
def test_a_test_waits_for_tasks_for_what_is_wrong_and_until_all_is_done(program: Sequence[str], tmp_path: Path) -> None:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics={COUNTS: 1}) as broker:
        start = partial(WordCount.start, program, broker.bootstrap_servers, tmp_path)
        groups = broker.streams_groups
        with start(number=0) as first, start(number=1) as second:
            assert WORDS in groups.wait_status(APPLICATION, "MISSING_SOURCE_TOPICS", timeout_s=DEADLINE_S)
            broker.create_topic(WORDS, PARTITIONS)
            stable = groups.wait_stable(APPLICATION, members=2, timeout_s=DEADLINE_S)
            assert [len(each.assignment.active) for each in stable.members] == [PARTITIONS, PARTITIONS]
            broker.log(WORDS).produce("to be or not to be")
            groups.wait_done(APPLICATION, timeout_s=DEADLINE_S)
            assert {each.key: each.value for each in broker.log(COUNTS).records()}[b"be"] == b"2"
            first.kill()
            broker.clock.advance(SESSION_S + 1)
            [left] = groups.wait_stable(APPLICATION, timeout_s=DEADLINE_S).members
            assert (left.endpoint, len(left.assignment.active)) == (("instance-1", 1), 2 * PARTITIONS)
            second.stop()
            groups.wait_stable(APPLICATION, members=0, timeout_s=DEADLINE_S)


def test_every_word_is_counted_once_over_sigkills_of_server_and_application(
    program: Sequence[str], tmp_path: Path, server_forker: ServerForker
) -> None:
    rng, expected = random.Random(11), Counter[str]()
    with ServerFolder(tmp_path, command=server_forker) as folder, closing(Ports()) as ports, ExitStack() as instances:
        address = str(ports.keep(Address("127.0.0.1", 0)))

        def server() -> ServerProcess:
            return folder.spawn("--kafka", address, "--durability", "os", extra_environment=QUICK).wait_ready()

        def application() -> WordCount:
            return instances.enter_context(WordCount.start(program, address, tmp_path, guarantee=EXACTLY_ONCE))

        running = server()
        admin = AdminClient({"bootstrap.servers": address, **PATIENT})
        made = admin.create_topics([NewTopic(WORDS, PARTITIONS, 1), NewTopic(COUNTS, 1, 1)])
        for future in made.values():
            future.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, **PATIENT})
        counting = application()
        for what in ("server", "application", "server"):
            feed(producer, rng, expected)
            if what == "server":
                running.kill()
                running = server()
            else:
                counting.kill()
                counting = application()
        feed(producer, rng, expected)
        assert producer.flush(DEADLINE_S) == 0
        assert counts_at(address, sum(expected.values())) == expected
        counting.stop()
        assert running.stop() == 0
        assert "Traceback" not in folder.wrote()


def feed(producer: Producer, rng: random.Random, expected: Counter[str]) -> None:
    for _ in range(50):
        words = rng.choices(VOCABULARY, k=10)
        expected.update(words)
        producer.produce(WORDS, " ".join(words), partition=rng.randrange(PARTITIONS))
    producer.poll(0)


def counts_at(address: str, total: int) -> Counter[str]:
    """The last count of each word, once they come to so many words. Counts of a word only grow, by what is committed."""
    found, deadline = Counter[str](), time.monotonic() + DEADLINE_S
    config = {"bootstrap.servers": address, "group.id": "reader", "isolation.level": "read_committed", **PATIENT}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(COUNTS, 0, 0)])
        while sum(found.values()) < total:
            assert time.monotonic() < deadline, f"{sum(found.values())} of {total} words were counted"
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            word, count = message.key().decode(), int(message.value())
            assert count > found[word], f"{word} was counted {count} after {found[word]}"
            found[word] = count
    return found
