from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import attrs
import pytest
from triolog.protocol.coordinator import (
    classic_group_records,
    consumer_group_records,
    share_group_records,
    streams_group_records,
)
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue, MemberMetadata
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC, GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from triolog.protocol.coordinator.stage_commits import (
    CommittedFile,
    StageCommitPartition,
    StageCommitState,
    StageCommitValue,
    encode_stage_commit_key,
)
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState, encode_transaction_key
from triolog.protocol.records.batch import parse_header
from triolog.protocol.types import Record, TopicPartition
from triolog.server.groups.consumer.member import MemberState
from triolog.server.storage.disk.checkpoints import encode_uuid
from triolog.tools.cli.dump.coordinator_records import record_in_words, topic_of

from tests.support.logs import START_MS, batch, open_driven

from ..conftest import call

PLACE = TopicPartition("flights", 3)
COMMIT_KEY = OffsetCommitKey("readers", PLACE).encode()
STATE = TransactionLogValue(
    producer_id=7,
    producer_epoch=2,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({PLACE}),
    last_update_ms=START_MS,
)

SHARE = StageCommitPartition(
    topic_partition=TopicPartition("flights", 3),
    topic_id=uuid.UUID(int=5),
    start_offset=11,
    files=(CommittedFile(task="0", size_bytes=70, crc=9, records_count=2),),
)
COMMIT = StageCommitValue(
    version=7, state=StageCommitState.DECIDED, producer_id=1000, producer_epoch=2, update_ms=1, partitions=(SHARE,)
)
DONE = attrs.evolve(
    COMMIT, state=StageCommitState.DONE, partitions=(attrs.evolve(SHARE, files=(), base_offset=11, end_offset=13),)
)


def words(key: bytes, value: bytes | None, topic: str = OFFSETS_TOPIC) -> str | None:
    return record_in_words(topic, parse_header(batch(START_MS)), Record(0, START_MS, key, value))


@pytest.mark.parametrize(
    ("topic", "key", "value", "told"),
    [
        (
            "__consumer_offsets",
            COMMIT_KEY,
            OffsetCommitValue(42, "half way", START_MS).encode(),
            "group readers: flights-3 at offset 42 'half way'",
        ),
        ("__consumer_offsets", COMMIT_KEY, None, "group readers: the offset of flights-3 is taken back"),
        ("__consumer_offsets", GroupMetadataKey("readers").encode(), None, "group readers: gone"),
        ("__consumer_offsets", b"\0\x09abc", b"", "a record of a newer kind of group"),
        (
            "__transaction_state",
            encode_transaction_key("mover"),
            STATE.encode(),
            "transactional id mover: ongoing, producer 7 epoch 2, timeout 60000 ms, partitions flights-3",
        ),
        ("__transaction_state", encode_transaction_key("mover"), None, "transactional id mover: gone"),
        (
            "__stage_commits",
            encode_stage_commit_key("query"),
            COMMIT.encode(),
            "application query: version 7 decided, producer 1000 epoch 2, flights-3 from 11 on, 2 records",
        ),
        (
            "__stage_commits",
            encode_stage_commit_key("query"),
            DONE.encode(),
            "application query: version 7 done, producer 1000 epoch 2, flights-3 11 to 12",
        ),
        ("__stage_commits", encode_stage_commit_key("query"), None, "application query: gone"),
        ("__stage_commits", b"\0\1abc", b"", "a record of a newer kind"),
        ("flights", b"key", b"value", None),
    ],
)
def test_a_record_is_put_into_words(topic: str, key: bytes, value: bytes | None, told: str | None) -> None:
    assert words(key, value, topic) == told


def test_dump_shows_committed_offsets_in_words(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    driven = open_driven(directory, topic_partition=TopicPartition("__consumer_offsets", 0))
    driven.append(batch(START_MS, key=COMMIT_KEY, value=OffsetCommitValue(42, "", START_MS).encode()))
    driven.close()
    log = directory / "00000000000000000000.log"
    text = call("dump", "--records", log).stdout
    assert "[group readers: flights-3 at offset 42]" in text
    assert [topic_of(name) for name in ("__consumer_offsets-49", "flights-0")] == ["__consumer_offsets", None]


TOPIC_ID = uuid.UUID(int=5)
ASSIGNED = [consumer_group_records.ConsumerGroupTopicPartitions(topic_id=TOPIC_ID.bytes, partitions=[0, 2])]
HELD = [
    consumer_group_records.ConsumerGroupCurrentPartitions(topic_id=TOPIC_ID.bytes, partitions=[0, 2], assignment_epochs=[2, 3])
]
PLACES = f"{encode_uuid(TOPIC_ID)}-0, {encode_uuid(TOPIC_ID)}-2"


def member(name: str, assignment: bytes, instance: str | None = None) -> MemberMetadata:
    client = {"member_id": name, "group_instance_id": instance, "client_id": "app", "client_host": "/10.0.0.7"}
    return MemberMetadata(**client, rebalance_timeout=1, session_timeout=2, subscription=b"", assignment=assignment)


def group(*members: MemberMetadata, protocol_type: str = "consumer") -> bytes:
    value = GroupMetadataValue(
        protocol_type=protocol_type, generation=4, protocol="range", leader="m1", current_state_timestamp=9, members=[*members]
    )
    return value.encode()


def test_a_classic_group_has_its_members_with_what_they_read() -> None:
    parts = [classic_group_records.ConsumerPartitions(topic="flights", partitions=[0, 3])]
    assignment = classic_group_records.encode_consumer_protocol(
        classic_group_records.ConsumerProtocolAssignment(assigned_partitions=parts), 1
    )
    assert words(GroupMetadataKey("readers").encode(), group(member("m1", assignment), member("m2", b"", "rack-2"))) == (
        "group readers: generation 4, consumer protocol range, 2 members"
        "; m1 of client app at /10.0.0.7, leads, has flights-0, flights-3"
        "; m2 of client app at /10.0.0.7, instance rack-2, has nothing"
    )


@pytest.mark.parametrize(("protocol_type", "assignment"), [("connect", b"abc"), ("consumer", b"\0")])
def test_what_is_not_understood_of_an_assignment_is_counted(protocol_type: str, assignment: bytes) -> None:
    told = words(GroupMetadataKey("workers").encode(), group(member("m1", assignment), protocol_type=protocol_type))
    assert told.endswith(f"leads, has {len(assignment)} bytes of assignment")


def test_a_group_without_members_says_so() -> None:
    value = GroupMetadataValue(protocol_type="", generation=5, protocol=None, leader=None, members=[])
    assert words(GroupMetadataKey("readers").encode(), value.encode()) == (
        "group readers: generation 5, no protocol -, 0 members"
    )


TOPICS = [
    consumer_group_records.ConsumerGroupTopicMetadata(
        topic_id=TOPIC_ID.bytes, topic_name="flights", num_partitions=4, partition_metadata=[]
    )
]
SHARED = [share_group_records.ShareGroupTopicPartitionsInfo(topic_id=TOPIC_ID.bytes, topic_name="t", partitions=[0, 1])]
DELETING = [share_group_records.ShareGroupTopicInfo(topic_id=TOPIC_ID.bytes, topic_name="u")]
TASKS = [streams_group_records.StreamsGroupTaskIds(subtopology_id="0", partitions=[0, 2])]
TASKS_HELD = [streams_group_records.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[0], assignment_epochs=[3])]
SUBTOPOLOGY = streams_group_records.StreamsGroupSubtopology(
    subtopology_id="0",
    source_topics=["t"],
    source_topic_regex=[],
    state_changelog_topics=[
        streams_group_records.StreamsGroupTopicInfo(name="c", partitions=0, replication_factor=0, topic_configs=[])
    ],
    repartition_sink_topics=[],
    repartition_source_topics=[],
    copartition_groups=[],
)
APP = {"client_id": "app", "client_host": "/10.0.0.7"}
AT_3 = {"member_epoch": 3, "previous_member_epoch": 2}
STREAMS_MEMBER = {**APP, "topology_epoch": 1, "process_id": "p", "client_tags": []}
NO_TASKS: dict[str, list[Any]] = {
    f"{kind}_tasks{pending}": [] for kind in ("active", "standby", "warmup") for pending in ("", "_pending_revocation")
}
KINDS: dict[str, Any] = {
    "Consumer": consumer_group_records.CONSUMER_GROUP_RECORDS,
    "Share": share_group_records.SHARE_GROUP_RECORDS,
    "Streams": streams_group_records.STREAMS_GROUP_RECORDS,
}
MODULES = {"Consumer": consumer_group_records, "Share": share_group_records, "Streams": streams_group_records}


@pytest.mark.parametrize(
    ("kind", "name", "value", "told"),
    [
        ("Consumer", "Metadata", {"epoch": 3}, "epoch 3"),
        ("Consumer", "Metadata", None, "gone"),
        ("Consumer", "PartitionMetadata", {"topics": TOPICS}, "topics flights (4 partitions)"),
        (
            "Consumer",
            "MemberMetadata",
            {**APP, "instance_id": "one", "subscribed_topic_names": ["t", "u"], "subscribed_topic_regex": "x.*"},
            "member m of client app at /10.0.0.7, instance one, subscribed to t, u, expression 'x.*'",
        ),
        ("Consumer", "MemberMetadata", None, "member m gone"),
        ("Consumer", "TargetAssignmentMetadata", {"assignment_epoch": 3}, "target assignment epoch 3"),
        ("Consumer", "TargetAssignmentMember", {"topic_partitions": ASSIGNED}, f"member m is to have {PLACES}"),
        (
            "Consumer",
            "CurrentMemberAssignment",
            {
                **AT_3,
                "state": MemberState.UNREVOKED_PARTITIONS,
                "assigned_partitions": [],
                "partitions_pending_revocation": HELD,
            },
            f"assignment of member m unrevoked_partitions at epoch 3, has nothing, must give up {PLACES}",
        ),
        (
            "Consumer",
            "RegularExpression",
            {"topics": ["xa", "xb"], "version": 1, "timestamp": 2},
            "expression 'x.*' matches xa, xb",
        ),
        (
            "Share",
            "MemberMetadata",
            {**APP, "subscribed_topic_names": ["t", "u"]},
            "member m of client app at /10.0.0.7, subscribed to t, u",
        ),
        ("Share", "MemberMetadata", None, "member m gone"),
        ("Share", "Metadata", {"epoch": 3, "metadata_hash": 1}, "epoch 3"),
        ("Share", "Metadata", None, "gone"),
        ("Share", "TargetAssignmentMetadata", {"assignment_epoch": 3}, "target assignment epoch 3"),
        ("Share", "TargetAssignmentMember", {"topic_partitions": ASSIGNED}, f"member m is to have {PLACES}"),
        (
            "Share",
            "CurrentMemberAssignment",
            {**AT_3, "state": 0, "assigned_partitions": ASSIGNED},
            f"assignment of member m at epoch 3, has {PLACES}",
        ),
        (
            "Share",
            "StatePartitionMetadata",
            {"initializing_topics": [], "initialized_topics": SHARED, "deleting_topics": DELETING},
            "share states of t-0, t-1; being made of nothing; being deleted of u",
        ),
        ("Streams", "MemberMetadata", STREAMS_MEMBER, "member m of client app at /10.0.0.7, process p, topology epoch 1"),
        ("Streams", "MemberMetadata", None, "member m gone"),
        ("Streams", "Metadata", {"epoch": 3, "metadata_hash": 1}, "epoch 3"),
        ("Streams", "TargetAssignmentMetadata", {"assignment_epoch": 3}, "target assignment epoch 3"),
        (
            "Streams",
            "TargetAssignmentMember",
            {"active_tasks": TASKS, "standby_tasks": [], "warmup_tasks": []},
            "member m is to have 0_0, 0_2 active, nothing standby",
        ),
        (
            "Streams",
            "CurrentMemberAssignment",
            {**NO_TASKS, **AT_3, "state": 1, "active_tasks": TASKS_HELD, "standby_tasks_pending_revocation": TASKS_HELD},
            "tasks of member m at epoch 3: 0_0 active, nothing standby; must give up nothing active, 0_0 standby",
        ),
        ("Streams", "Topology", {"epoch": 1, "subtopologies": [SUBTOPOLOGY]}, "topology epoch 1: 0 reads t, has c"),
        ("Streams", "Topology", None, "topology gone"),
    ],
)
def test_a_group_whose_assignments_the_server_makes(kind: str, name: str, value: dict[str, Any] | None, told: str) -> None:
    names = {"group_id": "g", "member_id": "m", "regular_expression": "x.*"}
    key_type = getattr(MODULES[kind], f"{kind}Group{name}Key")
    key = key_type(**{field.name: names[field.name] for field in attrs.fields(key_type)})
    record = (key, None if value is None else getattr(MODULES[kind], f"{kind}Group{name}Value")(**value))
    group = {"Consumer": "group", "Share": "share group", "Streams": "Streams group"}[kind]
    assert words(*KINDS[kind].encode(record)) == f"{group} g: {told}"


def test_one_that_cannot_be_read_says_so() -> None:
    key, _ = KINDS["Consumer"].encode((consumer_group_records.ConsumerGroupMetadataKey(group_id="g"), None))
    for unreadable in ((key, b"\0\0\0"), (b"\0\1\0\7ab", b"")):
        assert (words(*unreadable) or "").startswith("cannot be read: ")
