"""Streams groups (KIP-1071): an application of Kafka Streams counts words while its instances come and go.

`tests/applications` kills such applications and the server."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, EmbeddedBroker

from tests.clients import external_programs
from tests.clients.driver import DEADLINE_S
from tests.clients.external_programs import APPLICATION, COUNTS, STREAMS_VERSION, WORDS, ProgramUnavailableError, WordCount

pytestmark = [pytest.mark.merge, pytest.mark.timeout(900)]  # a JVM starts; the first test fetches Kafka Streams

PARTITIONS: Final = 4
VOCABULARY: Final = [f"word{number}" for number in range(20)]


@pytest.fixture(scope="module", params=[STREAMS_VERSION, "4.4.0"])
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
    async with triolog.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=topics) as broker:
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
