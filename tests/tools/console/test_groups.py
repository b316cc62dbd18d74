from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from triolog.protocol.native.messages import PlainRecord
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import ConsumerHeartbeat, Join, ShareHeartbeat, Sync
from triolog.tools.console.views.groups import TOLD_LAGS

from tests.support.streams_groups import joining
from tests.support.transactions import TransactionalProducer
from tests.tools.console.conftest import Shown, shown_broker, told

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
async def running() -> AsyncIterator[Shown]:
    """Topic `t` with ten records in each of two partitions, one a second; group `g` has read 4 and 7 of them."""
    async with shown_broker(config={"retention.ms": "-1"}, topics={"t": 2}, console={"allow_changes": True}) as shown:
        for place in PLACES:
            records = [PlainRecord(1000 * i, None, b"v") for i in range(10)]
            await shown.broker.append("t", records, partition=place.partition)
        await shown.broker.core.offsets.commit("g", [(PLACES[0], 4, None), (PLACES[1], 7, "note")])
        await shown.browser.open("/groups")
        yield shown


async def join_consumer(shown: Shown, group: str) -> None:
    member = {"group_id": group, "member_id": "member", "client_id": "reader", "client_host": "/127.0.0.1"}
    heartbeat = ConsumerHeartbeat(**member, rebalance_timeout_ms=30_000, topic_names=("t",), owned=frozenset())
    await shown.broker.core.groups.consumers.heartbeat(heartbeat)


async def join_all(shown: Shown) -> None:
    """A member for a group of each kind, named as the kind."""
    groups = shown.broker.core.groups
    await join_consumer(shown, "consumer")
    for epoch in (0, 2):
        names = ("t",) if epoch == 0 else None
        await groups.share.heartbeat(
            ShareHeartbeat(group_id="share", member_id="a", member_epoch=epoch, topic_names=names, client_id="reader")
        )
    await groups.streams.heartbeat(joining("streams", "a", "t", client_id="reader"))
    classic = {"group_id": "classic", "group_instance_id": "static"}
    client = {"member_id": "", "client_id": "reader", "client_host": "/127.0.0.1"}
    timeouts = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    join = Join(**classic, **client, **timeouts, protocol_type="consumer", protocols=(("range", b""),))
    joined = await groups.join(join)
    given = ConsumerProtocolAssignment(assigned_partitions=[ConsumerPartitions(topic="t", partitions=[0, 1])])
    assignments = ((joined.member_id, encode_consumer_protocol(given, 0)),)
    sync = Sync(**classic, generation=joined.generation, member_id=joined.member_id, assignments=assignments)
    await groups.sync(sync)


async def test_groups_of_all_four_kinds_are_listed_with_their_members(running: Shown) -> None:
    await join_all(running)
    page = await told(running.browser, "/groups")
    rows = {each["group"]: (each["type"], each["state"], each["member_count"]) for each in page["groups"]}
    assert rows.pop("share")[::2] == ("share", 1)
    assert rows.pop("streams")[::2] == ("streams", 1)
    assert rows == {"classic": ("classic", "Stable", 1), "consumer": ("consumer", "Stable", 1), "g": ("classic", "Empty", 0)}
    assert [each["group"] for each in (await told(running.browser, "/groups?q=S"))["groups"]] == [
        "classic",
        "consumer",
        "share",
        "streams",
    ]
    for name in ("classic", "consumer"):
        [member] = (await told(running.browser, f"/groups/{name}"))["members"]
        assert (member["client_id"], member["assignment"]) == ("reader", {"t": [0, 1]})
        readers = {each["client_id"] for each in (await told(running.browser, f"/groups/{name}"))["partitions"]}
        assert readers == {"reader"}
    shared = await told(running.browser, "/groups/share")
    assert [(each["topic"], each["partition"]) for each in shared["shared"]] == [("t", 0), ("t", 1)]
    assert shared["partitions"] == []


async def test_a_group_has_its_lag_by_partition(running: Shown) -> None:
    page = await told(running.browser, "/groups/g")
    assert [(each["offset"], each["high_watermark"], each["lag"]) for each in page["partitions"]] == [(4, 10, 6), (7, 10, 3)]
    assert (page["lag"], page["partitions"][1]["metadata"], page["can_change"]) == (9, "note", True)
    assert page["uncommitted"] == {"partitions": 0, "records": 0}
    name = "a/b <i>ü</i>?"
    await running.broker.core.offsets.commit(name, [(PLACES[0], 1, None)])
    odd = await running.browser.open("/groups/a%2Fb%20%3Ci%3E%C3%BC%3C%2Fi%3E%3F")
    assert odd.first["view"]["group"] == name
    assert "<i>" not in odd.text
    gone = await running.browser.get("/api/groups/nobody")
    assert (gone.status, gone.json["error"]["name"]) == (404, "GROUP_ID_NOT_FOUND")


async def test_a_partition_without_a_commit_is_counted_beside_the_lag(running: Shown) -> None:
    await running.broker.core.offsets.commit("half", [(PLACES[0], 4, None)])
    page = await told(running.browser, "/groups/half")
    assert [(each["offset"], each["lag"]) for each in page["partitions"]] == [(4, 6), (None, None)]
    assert (page["lag"], page["uncommitted"]) == (6, {"partitions": 1, "records": 10})


async def lags_with(shown: Shown, group: str, lag: int) -> dict[str, int | None]:
    """Of all groups of the list, by the first sample that tells it of this one."""
    with trio.fail_after(60):
        while True:
            lags = {each["group"]: each["lag"] for each in (await told(shown.browser, "/groups"))["groups"]}
            if lags.get(group) == lag:
                return lags


@pytest.mark.merge
async def test_every_group_of_the_list_has_its_lag_however_many_there_are(running: Shown) -> None:
    """Statistics tell of the 200 partitions that are most behind: `g` is not among them, nor is a part of `late`."""
    offsets = running.broker.core.offsets
    assert await lags_with(running, "g", 9) == {"g": 9}
    for number in range(TOLD_LAGS):
        await offsets.commit(f"far-{number}", [(PLACES[0], 0, None)])
    await offsets.commit("late", [(PLACES[0], 0, None), (PLACES[1], 9, None)])
    await offsets.commit("there", [(PLACES[0], 10, None), (TopicPartition("gone", 0), 1, None)])
    await join_consumer(running, "member")
    lags = await lags_with(running, "late", 11)
    assert {lags.pop(f"far-{number}") for number in range(TOLD_LAGS)} == {10}
    assert lags == {"g": 9, "late": 11, "there": 0, "member": None}


async def test_a_reset_is_seen_before_it_is_made(running: Shown) -> None:
    for query, moves, again, skipped in (
        ("at=5000", [(4, 5, 0, 1), (7, 5, 2, 0)], 2, 1),
        ("at=99000&topic=t", [(4, 10, 0, 6), (7, 10, 0, 3)], 0, 9),
        ("to=earliest", [(4, 0, 4, 0), (7, 0, 7, 0)], 11, 0),
        ("to=latest", [(4, 10, 0, 6), (7, 10, 0, 3)], 0, 9),
        ("to=6", [(4, 6, 0, 2), (7, 6, 1, 0)], 1, 2),
        ("shift=-5", [(4, 0, 4, 0), (7, 2, 5, 0)], 9, 0),
    ):
        plan = await told(running.browser, f"/groups/g/reset?{query}")
        assert [(each["current"], each["offset"], each["again"], each["skipped"]) for each in plan["moves"]] == moves
        assert (plan["again"], plan["skipped"]) == (again, skipped)
        assert [each["offset"] for each in (await told(running.browser, "/groups/g"))["partitions"]] == [4, 7]
        done = await running.browser.post("/api/groups/g/reset", {"offsets": plan["moves"]})
        assert (done.status, done.json["reset"]) == (200, 2)
        assert [each["offset"] for each in (await told(running.browser, "/groups/g"))["partitions"]] == [
            move[1] for move in moves
        ]
        await running.broker.core.offsets.commit("g", [(PLACES[0], 4, None), (PLACES[1], 7, "note")])


async def test_a_share_group_is_reset_too(running: Shown) -> None:
    shares = running.broker.core.groups.share
    await shares.alter_offsets("s", [(PLACES[0], 4)])
    plan = await told(running.browser, "/groups/s/reset?at=7000")
    assert [(each["partition"], each["current"], each["offset"]) for each in plan["moves"]] == [(0, 4, 7)]
    assert (plan["again"], plan["skipped"]) == (0, 3)
    done = await running.browser.post("/api/groups/s/reset", {"offsets": plan["moves"]})
    assert (done.status, done.json["reset"]) == (200, 1)
    [shared] = (await told(running.browser, "/groups/s"))["shared"]
    assert (shared["start_offset"], shared["lag"]) == (7, 3)


async def test_a_group_with_members_is_not_reset(running: Shown) -> None:
    await join_all(running)
    for name in ("consumer", "classic", "streams", "share"):
        refused = await running.browser.get(f"/api/groups/{name}/reset?to=earliest&topic=t")
        assert (refused.status, refused.json["error"]["name"]) == (422, "CANNOT_BE_RESET")
        offsets = [{"topic": "t", "partition": 0, "offset": 1}]
        refused = await running.browser.post(f"/api/groups/{name}/reset", {"offsets": offsets})
        assert (refused.status, refused.json["error"]["name"]) == (422, "CANNOT_BE_RESET")


async def test_a_reset_to_nowhere_or_of_nothing_is_refused(running: Shown) -> None:
    for query in ("", "at=1&to=latest", "at=x", "to=middle", "to=-1", "shift=x"):
        assert (await running.browser.get(f"/api/groups/g/reset?{query}")).status == 400, query
    place: dict[str, Any] = {"topic": "t", "partition": 0, "offset": 1}
    for offsets in (None, [], {}, [1], [{"topic": "t"}], [place | {"offset": -1}], [place | {"topic": 1}]):
        assert (await running.browser.post("/api/groups/g/reset", {"offsets": offsets})).status == 400, offsets
    assert [each["offset"] for each in (await told(running.browser, "/groups/g"))["partitions"]] == [4, 7]


async def test_deleting_a_group_wants_its_name_typed(running: Shown) -> None:
    refused = await running.browser.delete("/api/groups/g", {"confirm": "G"})
    assert (refused.status, refused.json["error"]["name"]) == (400, "NOT_CONFIRMED")
    assert (await running.browser.delete("/api/groups/g", {"confirm": "g"})).status == 200
    assert (await told(running.browser, "/groups"))["groups"] == []


PLACE = TopicPartition("t", 1)


@pytest.fixture
async def opened() -> AsyncIterator[Shown]:
    """`mover` has a transaction open in t-1, `idle` none, and producer 77000 one that hangs."""
    async with shown_broker(
        config={"retention.ms": "-1"}, topics={"t": 2, "other": 1}, console={"allow_changes": True}
    ) as shown:
        await TransactionalProducer.start(shown.broker.core, "idle")
        await (await TransactionalProducer.start(shown.broker.core, "mover")).produce(PLACE, "v")
        batch = build_batch([(1, None, b"v", ())], producer_id=77_000, producer_epoch=4, base_sequence=0, is_transactional=True)
        await shown.broker.core.writer.append(PLACE, batch)
        await shown.browser.open("/transactions")
        yield shown


async def test_what_is_open_comes_first_and_what_hangs_is_said(opened: Shown) -> None:
    page = await told(opened.browser, "/transactions")
    rows = [(each["transactional_id"], each["state"], each["open_ms"] is not None) for each in page["transactions"]]
    assert rows == [("mover", "Ongoing", True), ("idle", "Empty", False)]
    producers = [(each["topic"], each["partition"], each["is_hanging"]) for each in page["producers"]]
    assert sorted(producers) == [("t", 1, False), ("t", 1, True)]
    assert (page["topic"], {"t", "other"} <= {*page["topics"]}, page["can_change"]) == (None, True, True)
    found = await told(opened.browser, "/transactions/mover")
    assert (found["state"], found["partitions"]) == ("Ongoing", [{"topic": "t", "partition": 1}])
    assert (await opened.browser.get("/api/transactions/nobody")).status == 404


async def test_an_open_transaction_and_one_that_hangs_are_aborted(opened: Shown) -> None:
    done = await opened.browser.post("/api/transactions/abort", {"transactional_id": "mover"})
    assert done.json == {"transactional_id": "mover", "aborted": True}
    assert (await told(opened.browser, "/transactions/mover"))["state"] == "CompleteAbort"
    again = await opened.browser.post("/api/transactions/abort", {"transactional_id": "mover"})
    assert (again.status, again.json["error"]["name"]) == (400, "INVALID_TXN_STATE")
    producers = (await told(opened.browser, "/transactions?topic=t"))["producers"]
    assert [each["transaction_start_offset"] is not None for each in producers] == [True, False]
    assert (await told(opened.browser, "/transactions?topic=other"))["producers"] == []
    assert (await opened.browser.get("/api/transactions?topic=nothing")).status == 404
    done = await opened.browser.post("/api/transactions/abort", {"topic": "t", "partition": 1, "producer_id": 77_000})
    assert (done.status, done.json["start_offset"]) == (200, 1)
    assert (await told(opened.browser, "/transactions"))["producers"] == []


async def test_what_is_to_be_aborted_has_to_be_named(opened: Shown) -> None:
    place = {"topic": "t", "partition": 1, "producer_id": 1}
    for body in (
        *({}, {"transactional_id": 5}, {"topic": "t"}, {"topic": "t", "partition": 1}),
        *(place | {"partition": "1"}, place | {"producer_id": "x"}),
    ):
        assert (await opened.browser.post("/api/transactions/abort", body)).status == 400, body
