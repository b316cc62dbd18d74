"""A ShareFetch where its group has never begun: Apache Kafka 4.3.1 and triolog answer it alike."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Final

from triolog.protocol.records.builder import build_batch

from tests.kafka.differential.sides import Side, both_sharing
from tests.support.kafka_admin import GROUP_TYPE, NO_ID, SET, alter_incrementally, create_topics, new_topic
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.share_members import WireMember

# A broker starts. The commit tier has what it answered: server/listeners/kafka/test_share_fetch.py.

READ, UNREAD = "read", "unread"
WAIT_MS: Final = 1_500
"""Long enough for Kafka to have looked for the state, mostly."""
ATTEMPTS: Final = 10

Answered = list[tuple[int, list[tuple[int, int]]]]
"""Of each partition that is told of: its error, and what was acquired."""


def prepare(side: Side) -> dict[str, bytes]:
    """Two topics with a record in each; answers their ids."""
    side.prepare()
    for topic in (READ, UNREAD):
        side.wire.call(create_topics(new_topic(topic, 1)), 7)
    side.settle_metadata()
    asked = [{"topic_id": NO_ID, "name": topic} for topic in (READ, UNREAD)]
    found = side.wire.call(ask("Metadata", topics=asked, allow_auto_topic_creation=False), 12).topics
    for topic in (READ, UNREAD):
        part = {"index": 0, "records": build_batch([(int(time.time() * 1000), None, b"x", ())])}
        topics = [{"name": topic, "partition_data": [part]}]
        side.wire.call(ask("Produce", acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    return {topic.name: topic.topic_id for topic in found}


def begin(side: Side, group: str, ids: dict[str, bytes]) -> None:
    """A group that has begun in one of the topics."""
    side.wire.call(alter_incrementally((GROUP_TYPE, group, [("share.auto.offset.reset", SET, "earliest")])), 1)
    side.settle_metadata()
    with closing(KafkaWire.connect(side.address)) as wire:
        WireMember(wire, group, READ, ids[READ], "first").join()


def fetched(side: Side, group: str, ids: dict[str, bytes], member: str, wait_ms: int, topics: list[str]) -> Answered:
    part = {"partition_index": 0, "acknowledgement_batches": []}
    request = ask(
        "ShareFetch",
        group_id=group,
        member_id=member,
        share_session_epoch=0,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=2**20,
        max_records=10,
        batch_size=10,
        topics=[{"topic_id": ids[topic], "partitions": [part]} for topic in topics],
        forgotten_topics_data=[],
    )
    with closing(KafkaWire.connect(side.address)) as wire:
        answer = wire.call(request, 2)
    assert answer.error_code == 0, answer
    return [
        (each.error_code, [(acquired.first_offset, acquired.last_offset) for acquired in each.acquired_records])
        for topic in answer.responses
        for each in topic.partitions
    ]


CASES: Final[dict[str, tuple[int, list[str], Answered]]] = {
    "no wait": (0, [UNREAD], []),
    "waits": (WAIT_MS, [UNREAD], [(-1, [])]),
    "finds records elsewhere": (WAIT_MS, [READ, UNREAD], [(0, [(0, 0)])]),
}


def test_what_is_said_where_a_group_has_never_begun(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    with both_sharing(tmp_path, kafka_class_path, kafka) as (ours, theirs):
        ids, their_ids = prepare(ours), prepare(theirs)
        for group, (wait_ms, topics, expected) in CASES.items():
            begin(theirs, group, their_ids)
            # On a busy machine Kafka has not looked for a partition's state when the wait is over, and says nothing yet.
            members = (f"member {number}" for number in range(ATTEMPTS))
            assert any(fetched(theirs, group, their_ids, each, wait_ms, topics) == expected for each in members), group
            begin(ours, group, ids)
            assert fetched(ours, group, ids, "member", wait_ms, topics) == expected, group
