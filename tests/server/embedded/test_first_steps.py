"""What a newcomer meets first: addresses as text, values that print, errors without the way that a call went."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from confluent_kafka import Producer
from triolog.protocol.errors import InvalidConfigError, RequestError
from triolog.server.embedded import MEMORY, Address, BlockingBroker, aio, open_broker
from triolog.server.fake.clock import MovedClock

T = "orders"


def test_an_address_may_be_text() -> None:
    broker = BlockingBroker(MEMORY, native=None, kafka="127.0.0.1:0").start()
    try:
        assert isinstance(broker, BlockingBroker)
        assert isinstance(broker.kafka, Address)
        assert (broker.kafka.host, broker.native, broker.bootstrap_servers) == ("127.0.0.1", None, str(broker.kafka))
    finally:
        broker.stop()


@pytest.mark.parametrize("name", ["kafka", "native", "metrics"])
@pytest.mark.parametrize("given", ["127.0.0.1", "localhost:kafka", 9092, ":0"])
async def test_what_is_no_address_is_refused_with_the_name_of_the_argument(name: str, given: Any) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is {given!r}, expected HOST:PORT such as 127.0.0.1:0"):
        async with open_broker(MEMORY, **{name: given}):
            raise AssertionError


def test_whatever_a_program_is_given_prints_as_what_it_is() -> None:
    with BlockingBroker(MEMORY, native=None, kafka="127.0.0.1:0", topics=[T]) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "till"}).list_topics(timeout=60)
        broker.append(T, [b"espresso"])
        fault = broker.faults.add("Produce", hold=True)
        follow = broker.follow(T, group="baristas", max_wait_s=0)
        [record] = list(follow)
        texts = {
            "broker": repr(broker),
            "record": repr(record),
            "follow": repr(follow),
            "log": repr(broker.log(T)),
            "faults": repr(broker.faults),
            "fault": repr(fault),
            "requests": repr(broker.requests),
            "request": repr(broker.requests.find("Metadata")[-1]),
            "transaction": repr(broker.transaction("till")),
            "clock": repr(broker.clock),
            "groups": repr((broker.groups, broker.share_groups, broker.streams_groups)),
        }
        assert {name for name, text in texts.items() if " object at 0x" in text} == set()
        assert broker.bootstrap_servers in texts["broker"]
        assert broker.path in texts["broker"]
        assert "topic='orders', partition=0, offset=0" in texts["record"]
        assert "b'espresso'" in texts["record"]
        assert (T in texts["follow"], T in texts["log"], "till" in texts["transaction"]) == (True, True, True)
        assert "fired 0 of 0" in texts["fault"]
        assert "fired 0 of 0" in texts["faults"]
        assert "Metadata" in texts["request"]
        assert "client=till" in texts["request"]
    assert "not started or ended" in repr(broker)
    assert " object at 0x" not in repr(MovedClock())


async def test_a_broker_of_a_trio_program_prints_where_it_is() -> None:
    async with open_broker(MEMORY, native="127.0.0.1:0") as broker:
        assert broker.path in repr(broker)
        assert str(broker.native) in repr(broker)
        await broker.stop()
        assert "down" in repr(broker)


def frames(error: BaseException) -> list[str]:
    """The functions that a traceback shows, the test's own first."""
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


def test_an_answer_comes_without_the_way_of_the_call() -> None:
    with BlockingBroker(MEMORY, native=None, topics=[T]) as broker:
        for call in (
            lambda: broker.fetch("order"),
            lambda: broker.describe_topic("order"),
            lambda: broker.log("order").values(),
        ):
            with pytest.raises(RequestError) as caught:
                call()
            assert frames(caught.value)[2:] == ["call"]
        with pytest.raises(TimeoutError) as late:
            broker.log(T).wait_for(timeout_s=0.01)
        assert frames(late.value)[1:] == ["call"]
        with pytest.raises(TypeError) as wrong:
            broker.append(T, "text")  # type: ignore[arg-type]
        assert frames(wrong.value)[1] == "call"
        assert "check_records" in frames(wrong.value), "where it comes from is seen"
        assert not {"unwrap", "from_thread_run", "_outside_of_trio"} & set(frames(wrong.value))


def test_an_answer_of_an_asyncio_program_comes_without_the_way_of_the_call() -> None:
    async def main() -> list[str]:
        async with aio.open_broker(MEMORY, native=None) as broker:
            with pytest.raises(RequestError) as caught:
                await broker.fetch(T)
            return frames(caught.value)

    assert asyncio.run(main())[1:] == ["call"]
