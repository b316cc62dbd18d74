"""Requests about records: produce, fetch, look up, cut off."""

from __future__ import annotations

from typing import Any, Final

import attrs

from tests.kafka.differential.symbols import FLAWS, After, Batch, Symbol
from tests.support.kafka_admin import delete_records
from tests.support.kafka_wire import ask

from .world import NOON, ROLLING, Producer, Session, Step, World

INT32_MAX: Final = 2**31 - 1
ROOM_BYTES: Final = 50 * 2**20
FUTURE: Final = 10**13
SPECIAL_TIMES: Final = (-1, -2, -3, -4, -5, -6)
IDS_SINCE: Final = 13
"""The first version of Produce and Fetch with topic ids in place of names."""
NO_IDS_BEFORE: Final = 12


def produce(world: World) -> Step:
    """Without a producer id, to one topic; sometimes to several of its partitions."""
    name = world.topic_name()
    flawed = world.chance(0.12)
    parts = {}
    # One partition where Kafka may refuse the whole request.
    for partition in world.partitions_of([name], 1 if flawed else 2)[name]:
        batch = Batch(
            records=world.records(keyed=name in ("compacted", "odd") and world.chance(0.8), most=world.mostly(12, 200)),
            codec=world.codec(),
            flaw=world.one_of(FLAWS) if flawed else "",
            leader_epoch=world.mostly(-1, 0, 7),
        )
        if world.chance(0.03):
            # All have keys: of a batch with records that are wrong in different ways, Kafka's error is a matter of their order.
            batch = attrs.evolve(batch, records=tuple((FUTURE, *rest) for _, *rest in world.records(keyed=True)), flaw="")
        parts[partition] = batch
    return _produce(world, name, parts, acks=world.mostly(-1, 1, 0, 2, usually=0.7))


def produce_idempotent(world: World) -> Step:
    """The next batch of a producer, one that it has sent, or one out of turn."""
    found = [producer for producer in world.producers if not producer.transactional_id]
    producer = world.one_of(found) if found else Producer(id=10**15, epoch=0)
    name = world.topic_name()
    partition = world.partition(name)
    batch = _next_batch(world, producer, name, partition)
    return _produce(world, name, {partition: batch}, producer=producer)


def produce_in_transaction(world: World) -> Step:
    producer = world.transactional_producer()
    if producer is None:
        return produce(world)
    world.may_begin(producer.transactional_id)
    name = world.topic_name()
    partition = world.partition(name)
    # Kafka takes no first batch of a transaction above the lowest sequence that it was asked for, although a batch outside of
    # the transaction has that: a deviation.
    transactional = (name, partition) not in producer.sequences or world.chance(0.97)
    batch = attrs.evolve(_next_batch(world, producer, name, partition), transactional=transactional)
    versions: dict[str, Any] = {"lowest": 12} if producer.is_new_style else {"highest": 11}
    # Under another id Kafka takes it once the partition has joined: a deviation.
    transactional_id = world.mostly(producer.transactional_id, None, usually=0.96)
    return _produce(world, name, {partition: batch}, producer=producer, transactional_id=transactional_id, **versions)


def _next_batch(world: World, producer: Producer, name: str, partition: int) -> Batch:
    place = (name, partition)
    sent = producer.sent.get(place, [])
    if sent and world.chance(0.12):
        return world.one_of(sent[-7:])
    expected = producer.sequences.get(place, 0)
    # What Kafka expects of the first batch of a transaction depends on requests that it has refused before.
    may_be_wrong = not producer.transactional_id or place in producer.sequences
    return Batch(
        records=world.records(keyed=name in ("compacted", "odd")),
        codec=world.codec(),
        producer=producer.id,
        epoch=max(world.epoch(producer.epoch), 0),
        sequence=max(world.mostly(expected, expected + 1, expected - 1, 0, usually=0.93), 0) if may_be_wrong else expected,
    )


def _produce(
    world: World,
    name: str,
    parts: dict[int, Batch],
    *,
    acks: int = -1,
    producer: Producer | None = None,
    transactional_id: str | None = None,
    **versions: Any,
) -> Step:
    data = [{"index": index, "records": batch} for index, batch in parts.items()]
    topic = {"name": name, "topic_id": world.topic_id(name), "partition_data": data}
    body = ask("Produce", transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[topic])

    def learn(answer: Any) -> None:
        for topic_answer in answer.get("responses", ()):
            for part in topic_answer["partition_responses"]:
                batch = parts[part["index"]]
                was_sent = producer is not None and batch in producer.sent.get((name, part["index"]), ())
                if name == ROLLING and name in world.topics and producer is not None and (part["error_code"] or was_sent):
                    world.topics[name].may_have_rolled = True
                if part["error_code"] == 0:
                    _appended(world, name, part, batch, producer)

    return world.step(body, learn=learn, **{"lowest": 3, **versions})


def _appended(world: World, name: str, part: dict[str, Any], batch: Batch, producer: Producer | None) -> None:
    place = (name, part["index"])
    if isinstance(part["log_append_time_ms"], Symbol):
        world.append_times.append(part["log_append_time_ms"])
    if name in world.topics:
        ends = world.topics[name].ends
        ends[part["index"]] = max(ends.get(part["index"], 0), part["base_offset"] + len(batch.records))
    if producer is not None and batch not in producer.sent.setdefault(place, []):
        producer.sent[place].append(batch)
        producer.sequences[place] = batch.sequence + len(batch.records)


def fetch(world: World) -> Step:
    """With no session, or opening one."""
    opens = world.chance(0.15)
    names = [world.topic_name() for _ in range(world.mostly(1, 2, 3))]
    body = _fetch(world, names, is_in_session=opens, session_id=0, session_epoch=0 if opens else -1)
    step = world.step(body, rolled=_rolled(world))

    def learn(answer: Any) -> None:
        if opens and isinstance(answer.get("session_id"), Symbol):
            world.sessions.append(Session(id=answer["session_id"], next_epoch=1, version=step.version))

    return attrs.evolve(step, learn=learn)


def fetch_in_session(world: World) -> Step:
    """An incremental one; with another epoch than the next sometimes, or to an end."""
    if not world.sessions:
        return fetch(world)
    session = world.one_of(world.sessions[-4:])
    ends = world.chance(0.1)
    epoch = -1 if ends else world.mostly(session.next_epoch, session.next_epoch + 1, 0, usually=0.92)
    names = [world.topic_name() for _ in range(world.rng.randrange(3))]
    forgotten = [
        {"topic": name, "topic_id": world.topic_id(name), "partitions": numbers}
        for name, numbers in world.partitions_of([world.topic_name()] if world.chance(0.2) else [], 2).items()
        if name in world.topics
        and name not in names  # what is both asked for and forgotten by id is a matter of Kafka's hashes
    ]
    body = _fetch(world, names, is_in_session=True, session_id=session.id, session_epoch=epoch, forgotten_topics_data=forgotten)
    by_id = session.version >= IDS_SINCE
    if world.chance(0.03):
        by_id = not by_id
    versions = {"lowest": IDS_SINCE if by_id else 10, "highest": 99 if by_id else NO_IDS_BEFORE}
    step = world.step(body, rolled=_rolled(world), **versions)

    def learn(answer: Any) -> None:
        if ends or epoch == 0:
            world.sessions.remove(session)
            if epoch == 0 and isinstance(answer.get("session_id"), Symbol):
                world.sessions.append(Session(id=answer["session_id"], next_epoch=1, version=step.version))
        elif answer.get("error_code") == 0:
            session.next_epoch += 1

    return attrs.evolve(step, learn=learn)


def _fetch(world: World, names: list[str], *, is_in_session: bool, **fields: Any) -> Any:
    """In a session there is room for everything: which partition it serves first is a deviation. So it is where a cut batch of
    one partition has taken the room of the next, so that there is one partition where bytes are limited."""
    has_room = is_in_session or world.chance(0.5)
    most = 3 if has_room else 1
    topics = [
        {
            "topic": name,
            "topic_id": world.topic_id(name),
            "partitions": [_fetch_partition(world, name, number, is_in_session=is_in_session) for number in numbers],
        }
        for name, numbers in world.partitions_of(names[:most], most).items()
    ]
    given = {
        "max_wait_ms": world.mostly(0, 3),
        "min_bytes": world.mostly(1, 0, 10_000),
        "max_bytes": ROOM_BYTES if has_room else world.one_of([0, 1, 500, 3000]),
        "isolation_level": world.rng.randrange(2),
        "forgotten_topics_data": [],
        "rack_id": "",
        **fields,
    }
    return ask("Fetch", topics=topics, **given)


def _rolled(world: World) -> frozenset[Any]:
    rolled = [topic for topic in world.topics.values() if topic.may_have_rolled]
    return frozenset([*(topic.name for topic in rolled), *(topic.id for topic in rolled)])


def _fetch_partition(world: World, name: str, number: int, *, is_in_session: bool) -> dict[str, Any]:
    return {
        "partition": number,
        "current_leader_epoch": world.mostly(-1, 0, 1, usually=0.9),
        "fetch_offset": world.offset(name, number),
        "last_fetched_epoch": -1,
        "partition_max_bytes": 2**20 if is_in_session else world.mostly(2**20, 0, 1, 300, 2000, usually=0.6),
    }


def list_offsets(world: World) -> Step:
    names = [world.topic_name() for _ in range(world.mostly(1, 2))]

    def partition(_: str, number: int) -> dict[str, Any]:
        epoch = world.mostly(-1, 0, 1, usually=0.9)
        return {"partition_index": number, "current_leader_epoch": epoch, "timestamp": _time(world)}

    topics = world.topics_of(names, 3, partition)
    body = ask("ListOffsets", replica_id=-1, isolation_level=world.rng.randrange(2), topics=topics, timeout_ms=1000)
    return world.step(body, lowest=1)


def _time(world: World) -> Any:
    if world.chance(0.5):
        return world.mostly(world.one_of(SPECIAL_TIMES), -7, usually=0.97)
    if world.append_times and world.chance(0.3):
        return After(symbol=world.one_of(world.append_times), milliseconds=world.one_of([0, 0, 1]))
    return world.mostly(NOON + world.rng.randrange(-10_000, 120_000), 0, 1, 2**62)


def epoch_ends(world: World) -> Step:
    def partition(_: str, number: int) -> dict[str, Any]:
        epoch = world.mostly(-1, 0, 1, usually=0.9)
        return {"partition": number, "current_leader_epoch": epoch, "leader_epoch": world.mostly(0, 1, -1, 7)}

    topics = world.topics_of([world.topic_name()], 3, partition, key="topic")
    return world.step(ask("OffsetForLeaderEpoch", replica_id=-1, topics=topics))


def cut_off(world: World) -> Step:
    """DeleteRecords; seldom all of a partition. Nothing of an open transaction: for Kafka the last stable offset is then where
    that began, below the start of the log, which is a deviation."""
    name = world.topic_name()
    partition = world.partition(name)
    offset = world.offset(name, partition)
    if offset > 0:
        offset = 0 if any(producer.may_be_open for producer in world.producers) else offset // world.mostly(4, 1)
    return world.step(delete_records((name, partition, offset)))
