"""Requests about producer ids and transactions."""

from __future__ import annotations

from typing import Any, Final

from tests.kafka.differential.symbols import MADE_UP_PRODUCER, Symbol
from tests.support.kafka_wire import ask

from .world import GROUPS, TRANSACTIONAL_IDS, Producer, Step, World

TIMEOUT_MS: Final = 600_000
"""No transaction ends by itself while a script runs."""
OFFSETS: Final = "__consumer_offsets"


def new_producer(world: World) -> Step:
    timeout = world.mostly(TIMEOUT_MS, 0, 2**31 - 1)

    def learn(answer: Any) -> None:
        if answer["error_code"] == 0:
            world.producers.append(Producer(id=answer["producer_id"], epoch=answer["producer_epoch"]))

    return world.step(ask("InitProducerId", transactional_id=None, transaction_timeout_ms=timeout), learn=learn)


def init_transactions(world: World) -> Step:
    name = world.mostly(world.one_of(TRANSACTIONAL_IDS), "", usually=0.97)
    known = next((each for each in world.producers if each.transactional_id == name), None)
    goes_on = known is not None and world.chance(0.4)
    # With another epoch, Kafka aborts what is open and refuses it then: a deviation.
    epoch = -1 if known is None else known.epoch if known.may_be_open else world.epoch(known.epoch)
    body = ask(
        "InitProducerId",
        transactional_id=name,
        transaction_timeout_ms=world.mostly(TIMEOUT_MS, 0, -1, 10**9, usually=0.95),
        producer_id=known.id if known and goes_on else world.mostly(-1, MADE_UP_PRODUCER, usually=0.97),
        producer_epoch=epoch if known and goes_on else world.mostly(-1, 5, usually=0.97),
    )

    def learn(answer: Any) -> None:
        if answer["error_code"] == 0:
            world.has_ended(name)
            world.producers = [each for each in world.producers if each.transactional_id != name]
            style = world.chance(0.6)
            world.producers.append(
                Producer(answer["producer_id"], answer["producer_epoch"], transactional_id=name, is_new_style=style)
            )

    return world.step(body, lowest=3 if goes_on else 0, learn=learn, transactional_id=name)


def restart(world: World, name: str) -> Step:
    body = ask("InitProducerId", transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    return world.step(body, transactional_id=name)


def _whose(world: World) -> dict[str, Any]:
    """Transactional id, producer id and epoch; now and then wrong ones."""
    producer = world.transactional_producer()
    if producer is None:
        return {"transactional_id": world.one_of(TRANSACTIONAL_IDS), "producer_id": MADE_UP_PRODUCER, "producer_epoch": 0}
    return {
        "transactional_id": world.mostly(producer.transactional_id, "someone-else", usually=0.97),
        "producer_id": world.mostly(producer.id, MADE_UP_PRODUCER, usually=0.97),
        "producer_epoch": world.epoch(producer.epoch),
    }


def _style(world: World, transactional_id: str) -> bool:
    return any(each.is_new_style for each in world.producers if each.transactional_id == transactional_id)


def add_partitions(world: World) -> Step:
    whose = _whose(world)
    world.may_begin(whose["transactional_id"])
    topics = [
        {"name": name, "partitions": numbers}
        for name, numbers in world.partitions_of([_joining(world) for _ in range(world.mostly(1, 2))], 2).items()
    ]
    body = ask(
        "AddPartitionsToTxn",
        v3_and_below_transactional_id=whose["transactional_id"],
        v3_and_below_producer_id=whose["producer_id"],
        v3_and_below_producer_epoch=whose["producer_epoch"],
        v3_and_below_topics=topics,
    )
    return world.step(body, highest=3)


def _joining(world: World) -> str:
    return world.mostly(world.topic_name(), OFFSETS, usually=0.97)


def add_offsets(world: World) -> Step:
    whose = _whose(world)
    world.may_begin(whose["transactional_id"])
    return world.step(ask("AddOffsetsToTxn", **whose, group_id=world.group_name()))


def commit_offsets(world: World) -> Step:
    whose = _whose(world)
    producer = world.transactional_producer()
    if producer is not None:
        # Under another id Kafka takes them once the group has joined: a deviation.
        whose = {"transactional_id": producer.transactional_id, "producer_id": producer.id, "producer_epoch": producer.epoch}
        whose["producer_epoch"] = world.epoch(producer.epoch)
    world.may_begin(whose["transactional_id"])
    group = world.groups[world.one_of(GROUPS)]

    def partition(_: str, number: int) -> dict[str, Any]:
        offset = world.rng.randrange(100)
        return {"partition_index": number, "committed_offset": offset, "committed_metadata": world.mostly("", None, "note")}

    topics = world.topics_of([world.topic_name()], 2, partition)
    as_member = group.member != "" and world.chance(0.7)
    body = ask(
        "TxnOffsetCommit",
        **whose,
        group_id=group.name,
        generation_id=world.mostly(group.generation, group.generation + 1) if as_member else -1,
        member_id=group.member if as_member else "",
        group_instance_id=group.instance if as_member else None,
        topics=topics,
    )

    def learn(answer: Any) -> None:
        if any(part["error_code"] == 0 for topic in answer["topics"] for part in topic["partitions"]):
            group.transactions.add(whose["transactional_id"])

    if _style(world, whose["transactional_id"]):
        return world.step(body, lowest=5, learn=learn)
    return world.step(body, lowest=3 if as_member else 0, highest=4, learn=learn)


def end(world: World) -> Step:
    whose = _whose(world)
    name = whose["transactional_id"]
    is_new_style = _style(world, name)

    def learn(answer: Any) -> None:
        if answer["error_code"] != 0:
            return
        world.has_ended(name)
        for producer in world.producers:
            if producer.transactional_id == name:
                producer.is_new_style = world.chance(0.6)
                if isinstance(answer["producer_id"], Symbol):
                    producer.id, producer.epoch = answer["producer_id"], answer["producer_epoch"]
                    producer.sequences, producer.sent = {}, {}

    body = ask("EndTxn", **whose, committed=world.chance(0.6))
    versions = {"lowest": 5} if is_new_style else {"highest": 4}
    return world.step(body, learn=learn, transactional_id=name, **versions)


def describe_transactions(world: World) -> Step:
    names = list(dict.fromkeys([world.one_of(TRANSACTIONAL_IDS), world.mostly("payments", "someone-else", "", usually=0.7)]))
    return world.step(ask("DescribeTransactions", transactional_ids=names))


def list_transactions(world: World) -> Step:
    states = world.mostly([], ["Ongoing"], ["CompleteCommit", "Empty"], ["Bogus"], usually=0.5)
    known = [each.id for each in world.producers if each.transactional_id]
    ids: list[Any] = [world.one_of(known)] if known and world.chance(0.3) else []
    body = ask(
        "ListTransactions",
        state_filters=states,
        producer_id_filters=ids,
        duration_filter=world.mostly(-1, 10**9),
        transactional_id_pattern=world.mostly(None, "pay.*", usually=0.9),
    )
    return world.step(body)


def write_markers(world: World) -> Step:
    """Of producers without a transactional id: a coordinator would try for ever to end what has ended with a later epoch."""
    known = [(each.id, each.epoch) for each in world.producers if not each.transactional_id]
    producer, epoch = world.one_of(known) if known and world.chance(0.7) else (MADE_UP_PRODUCER, 3)
    marker = {
        "producer_id": producer,
        "producer_epoch": world.mostly(epoch, epoch + 1, max(epoch - 1, 0), usually=0.6),
        "transaction_result": world.chance(0.5),
        "topics": [
            {"name": name, "partition_indexes": numbers}
            for name, numbers in world.partitions_of([world.topic_name()], 2).items()
        ],
        "coordinator_epoch": world.mostly(0, 7, -1),
        "transaction_version": world.mostly(0, 2, usually=0.5),
    }
    return world.step(ask("WriteTxnMarkers", markers=[marker]))
