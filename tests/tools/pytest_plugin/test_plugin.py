"""The plug-in as other projects meet it: in a pytest of its own, with other plug-ins beside it."""

from __future__ import annotations

import tomllib
from importlib import metadata, util
from pathlib import Path
from typing import Final

import pytest
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY
from triolog.tools.pytest_plugin.report import report_of

from tests.support.kafka_wire import KafkaWire
from tests.support.streams_members import StreamsMember

pytest_plugins = "pytester"

ROOT: Final = Path(__file__).resolve().parents[3]
PLUGINS_BESIDE: Final = frozenset(
    ("randomly", "cacheprovider", "timeout", "hypothesispytest", "trio", "asyncio", "anyio", "xdist")
)
LOADED: Final = any(each.name == "triolog" for each in metadata.entry_points(group="pytest11"))
PLUGIN: Final = () if LOADED else ("-p", "triolog.tools.pytest_plugin")
EXAMPLE: Final = """
from confluent_kafka import Producer

def test_order(triolog_broker):
    producer = Producer({"bootstrap.servers": triolog_broker.bootstrap_servers})
    producer.produce("orders", b"one espresso")
    producer.flush()
    assert triolog_broker.log("orders").values() == [b"one espresso"]
"""


def run(pytester: pytest.Pytester, *arguments: str, beside: str | None = None) -> pytest.RunResult:
    """With one of the other plug-ins or with none: what they load takes longer than a test."""
    without = [argument for name in sorted(PLUGINS_BESIDE - {beside}) for argument in ("-p", f"no:{name}")]
    return pytester.runpytest_subprocess(*without, *PLUGIN, *arguments)


def test_a_run_without_its_fixtures_loads_neither_trio_nor_the_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing():
            assert not [name for name in sys.modules if name.split(".")[0] == "trio" or name.startswith("triolog.server")]
    """)
    run(pytester).assert_outcomes(passed=1)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"triolog": "triolog.tools.pytest_plugin"}


def test_brokers_of_tests_and_of_the_session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_example=EXAMPLE,
        test_markers="""
        import pytest

        pytestmark = pytest.mark.triolog(topics={"orders": 3, "payments": 1})

        @pytest.mark.triolog(records={"payments": ["a", (5, b"k", b"b", ())]})
        def test_with_records(triolog_broker):
            assert triolog_broker.topics() == ["orders", "payments"]
            assert [(each.key, each.value) for each in triolog_broker.log("payments").fetch()] == [(None, b"a"), (b"k", b"b")]

        def test_each_has_its_own(triolog_broker):
            assert triolog_broker.log("orders").end_offsets() == {0: 0, 1: 0, 2: 0}
            triolog_broker.log("orders").append(["x"])

        def test_and_no_leftovers(triolog_broker):
            assert triolog_broker.log("orders").values() == []
        """,
        test_sessions="""
        import pytest

        def test_first(triolog_broker_session):
            triolog_broker_session.create_topic("t")
            triolog_broker_session.log("t").append(["x"])

        def test_second(triolog_broker_session):
            assert triolog_broker_session.log("t").values() == [b"x"]
            triolog_broker_session.reset()

        def test_third(triolog_broker_session):
            assert triolog_broker_session.topics() == []

        @pytest.mark.triolog("orders")
        def test_positional(triolog_broker):
            pass

        @pytest.mark.triolog(topcis=["orders"])
        def test_misspelt(triolog_broker):
            pass
        """,
    )
    result = run(pytester, "--strict-markers")
    result.assert_outcomes(passed=7, errors=2)
    result.stdout.fnmatch_lines(["*accepts only keywords*", "*open() has no option 'topcis' (did you mean 'topics'[?])*"])


@pytest.mark.merge
def test_a_failed_test_tells_what_the_broker_was_asked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from confluent_kafka import Producer

        def test_it(triolog_broker):
            triolog_broker.faults.add("Produce", error="MESSAGE_TOO_LARGE")
            producer = Producer({"bootstrap.servers": triolog_broker.bootstrap_servers, "client.id": "mine"})
            producer.produce("orders", b"x")
            producer.flush()
            assert triolog_broker.log("orders").values() == [b"x"]
    """)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*triolog_broker: state and last requests*",
            "topic orders (partition: first offset-next offset) 0: 0-0",
            "fault #1 fired 1 times of 1 matches: *MESSAGE_TOO_LARGE*",
            "#* Produce v* client=mine orders* MESSAGE_TOO_LARGE fault=1",
        ]
    )


@pytest.mark.merge
def test_a_device_that_is_full_when_a_test_ends_is_no_error_of_its_teardown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.triolog(topics=["t"])
        @pytest.mark.parametrize("effect", ["full", "error"])
        def test_it(triolog_broker, effect):
            triolog_broker.faults.disk(effect)
            with pytest.raises(Exception):
                triolog_broker.log("t").append(["x"])

        def test_of_the_session(triolog_broker_session):
            triolog_broker_session.create_topic("t")
            triolog_broker_session.faults.disk("full")
    """)
    run(pytester).assert_outcomes(passed=3)


@pytest.mark.merge
def test_with_xdist_each_worker_has_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(number, triolog_broker, triolog_broker_session):
            assert triolog_broker.kafka.port != triolog_broker_session.kafka.port
            triolog_broker.log("t") if number else None
            triolog_broker_session.create_topic(f"t{number}")
    """)
    run(pytester, "-n", "2", beside="xdist").assert_outcomes(passed=6)


@pytest.mark.merge
def test_with_pytest_trio(pytester: pytest.Pytester) -> None:
    """A broker in the test's own loop ends with a full device, too."""
    pytester.makepyfile("""
        import pytest
        import trio
        import triolog

        @pytest.fixture
        async def broker():
            async with triolog.open(":memory:", topics=["t"]) as broker:
                yield broker

        @pytest.mark.trio
        async def test_it(triolog_broker, broker):
            triolog_broker.create_topic("t")
            await trio.to_thread.run_sync(triolog_broker.log("t").append, ["x"])
            assert triolog_broker.log("t").values() == [b"x"]
            broker.faults.disk("full")
    """)
    run(pytester, beside="trio").assert_outcomes(passed=1)


@pytest.mark.merge
@pytest.mark.skipif(util.find_spec("pytest_asyncio") is None, reason="pytest-asyncio is not installed")
def test_with_pytest_asyncio_and_aiokafka(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from aiokafka import AIOKafkaProducer

        @pytest.mark.asyncio
        @pytest.mark.triolog(topics=["orders"])
        async def test_it(triolog_broker):
            producer = AIOKafkaProducer(bootstrap_servers=triolog_broker.bootstrap_servers)
            await producer.start()
            try:
                await producer.send_and_wait("orders", b"x")
            finally:
                await producer.stop()
            assert triolog_broker.log("orders").values() == [b"x"]
    """)
    run(pytester, beside="asyncio").assert_outcomes(passed=1)


def test_it_says_why_an_application_of_kafka_streams_does_not_run() -> None:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0)) as broker:
        with KafkaWire.connect(broker.kafka) as client:
            StreamsMember(client).beat()
        lines = report_of(broker).splitlines()
        told = "Streams group app is NotReady with 1 members; MISSING_SOURCE_TOPICS: Source topics topic are missing."
        assert told in lines
        broker.crash()
        assert "the broker is down. Call restart() to start it again" in report_of(broker).splitlines()
