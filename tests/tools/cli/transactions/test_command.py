from __future__ import annotations

from collections.abc import Iterator

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking import BlockingClient

from ...client.doors import Door
from ..conftest import Cli

T0 = TopicPartition("t", 0)


@pytest.fixture
def client(broker: BlockingBroker) -> Iterator[BlockingClient]:
    """`mover` has a transaction open in t-0 from offset 0 on, and producer 77000 one that hangs, from offset 1 on."""
    broker.create_topic("t")
    with BlockingClient(broker.native) as client:
        made = client.call(m.InitProducerRequest("mover"))
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        joined = build_batch([(1, None, b"v", ())], base_sequence=0, is_transactional=True, **who)
        client.call(m.ProduceRequest((m.ProducePartition("t", 0, joined),), transactional_id="mover"))
        broker.append(
            "t",
            build_batch([(1, None, b"v", ())], producer_id=77_000, producer_epoch=4, base_sequence=0, is_transactional=True),
        )
        yield client


def test_open_transactions_are_listed_described_and_aborted(cli: Cli, client: BlockingClient) -> None:
    told = cli.json("transactions", "list")
    [each] = told["transactions"]
    assert (each["transactional_id"], each["state"], each["partition_count"], told["left_out"]) == ("mover", "Ongoing", 1, 0)
    assert each["open_ms"] >= 0
    rows = [line.split() for line in cli.ok("transactions", "list").splitlines()]
    assert ["mover", "Ongoing"] in [row[:2] for row in rows]
    assert cli.ok("transactions", "list", "--state", "Empty") == "no such transactions\n"
    assert cli.ok("transactions", "list", "--limit", "0") == "1 more transactional id; --max shows more, up to 10,000\n"
    [each] = cli.json("transactions", "describe", "mover")
    assert each["partitions"] == [{"topic": "t", "partition": 0}]
    assert "mover has joined t-0" in cli.ok("transactions", "describe", "mover")

    assert "Abort the transaction of mover?" in cli.call("transactions", "abort", "mover", stdin="n\n").stderr
    assert cli.json("transactions", "list")["transactions"][0]["state"] == "Ongoing"
    assert cli.ok("transactions", "abort", "mover", "--yes") == "aborted the transaction of mover\n"
    [each] = cli.json("transactions", "list", "--state", "CompleteAbort")["transactions"]
    assert each["open_ms"] is None
    assert "INVALID_TXN_STATE" in cli.refused("transactions", "abort", "mover", "--yes")


def test_what_hangs_is_shown_and_aborted(cli: Cli, client: BlockingClient) -> None:
    [partition] = cli.json("transactions", "producers", "t")
    assert [(each["transaction_start_offset"], each["is_hanging"]) for each in partition["producers"]] == [
        (0, False),
        (1, True),
    ]
    rows = [line.split() for line in cli.ok("transactions", "producers", "t", "--open").splitlines()]
    assert [row[-1] for row in rows if row[:1] == ["0"]] == ["open", "hanging"]
    where = ("transactions", "abort", "--topic", "t", "--partition", "0", "--producer-id", "77000")
    assert cli.ok(*where, "--yes") == "aborted the transaction of producer 77000 on t-0, open since offset 1\n"
    assert "has no transaction open" in cli.refused(*where, "--yes")
    assert "or --topic, --partition and --producer-id" in cli.refused(*where[:-2], "--yes", code=2)
    assert "Give a transactional ID" in cli.refused(*where, "mover", "--yes", code=2)


def test_what_is_not_there_is_said(cli: Cli, broker: BlockingBroker) -> None:
    assert "knows no transactional ids" in cli.ok("transactions", "list")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in cli.refused("transactions", "describe", "nobody")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in cli.refused("transactions", "abort", "nobody", "--yes")
    broker.create_topic("t")
    assert cli.ok("transactions", "producers", "t") == "no producer is remembered in t\n"
    assert cli.ok("transactions", "producers", "t", "--open") == "no producer has a transaction open in t\n"
    assert "there is no topic 'nowhere'" in cli.refused("transactions", "producers", "nowhere")


async def test_both_clients_see_and_abort_transactions(broker: BlockingBroker, client: BlockingClient, door: Door) -> None:
    async with door.client(broker.native) as other:
        admin = door.admin(other)
        assert [each.transactional_id for each in (await admin.list_transactions(open_for_ms=0)).transactions] == ["mover"]
        [mover] = await admin.describe_transactions("mover")
        assert mover.partitions == (m.Partition("t", 0),)
        [producers] = await admin.describe_producers("t", open_only=True)
        assert [each.producer_id for each in producers.producers] == [mover.producer_id, 77_000]
        assert await admin.describe_producers(T0, open_only=True) == [producers]
        await admin.abort_transaction("mover")
        assert await admin.abort_hanging_transaction(T0, 77_000) == 1
        assert (await admin.list_transactions(states=["CompleteAbort"])).left_out == 0
        with pytest.raises(RequestError) as caught:
            await admin.abort_transaction("mover")
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE
        with pytest.raises(RequestError, match="has no transaction open"):
            await admin.abort_hanging_transaction(T0, 77_000)
