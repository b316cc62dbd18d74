"""Answers that differ on purpose. Each stands in docs/kafka-compatibility.md with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.groups import JoinGroupRequest
from triolog.protocol.kafka.messages.offsets import OffsetCommitRequest
from triolog.protocol.kafka.messages.records import FetchRequest, ListOffsetsRequest, ProduceRequest
from triolog.protocol.kafka.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from triolog.protocol.kafka.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from triolog.protocol.records.batch import COMPRESSION_MASK

from .world import Step

FIRST_WITH_ZSTD: Final = 10
MAX_TIMESTAMP: Final = -3
REFUSALS: Final = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_REQUIRED_ACKS)
FIRST_WITH_NEXT_EPOCH: Final = 5


def excuse(step: Step, ours: Any, theirs: Any) -> None:
    if isinstance(step.body, FetchRequest) and step.version < FIRST_WITH_ZSTD:
        _excuse_refused_zstd(ours, theirs)
    if isinstance(step.body, FetchRequest):
        _excuse_sizes(step, ours, theirs)
    if isinstance(step.body, EndTxnRequest) and step.version < FIRST_WITH_NEXT_EPOCH and not ours["error_code"]:
        _excuse_end_of_nothing(theirs)
    if isinstance(step.body, OffsetCommitRequest | TxnOffsetCommitRequest):
        _excuse_generation_of_no_member(ours, theirs)
    if isinstance(step.body, ListOffsetsRequest):
        _excuse_times_below_the_start(step, ours, theirs)
    if isinstance(step.body, EndTxnRequest) and ours["error_code"] == ErrorCode.PRODUCER_FENCED:
        _excuse_end_again(ours, theirs)
    if isinstance(step.body, JoinGroupRequest) and ours["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID:
        _excuse_protocol_of_no_member(theirs)
    if isinstance(step.body, StreamsGroupDescribeRequest):
        for answer in (ours, theirs):
            _excuse_order_of_members(answer)
        _excuse_partitions_not_told(ours, theirs)
    if isinstance(step.body, StreamsGroupHeartbeatRequest):
        for answer in (ours, theirs):
            _excuse_order_in_application(answer)
    if isinstance(step.body, ProduceRequest):
        _excuse_unknown_codec(ours, theirs)


def _excuse_end_of_nothing(theirs: Any) -> None:
    """To end what nothing has joined is fine here."""
    if theirs["error_code"] == ErrorCode.INVALID_TXN_STATE:
        theirs["error_code"] = 0


def _excuse_end_again(ours: Any, theirs: Any) -> None:
    """The epoch before the current one: for Kafka this may be an end that is asked for again, of the same kind or the other."""
    if theirs["error_code"] in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
        theirs.update(ours)


def _excuse_order_of_members(answer: Any) -> None:
    """They come in the order of Kafka's hash maps."""
    for group in answer["groups"]:
        group["members"].sort(key=lambda member: member["member_id"])


def _excuse_partitions_not_told(ours: Any, theirs: Any) -> None:
    """Kafka tells how many partitions internal topics have from the second heartbeat of a group on."""
    for mine, other in zip(ours["groups"], theirs["groups"], strict=True):
        parts = ((group["topology"] or {}).get("subtopologies", ()) for group in (mine, other))
        for one, two in zip(*parts, strict=False):
            for kind in ("state_changelog_topics", "repartition_source_topics"):
                for topic, same in zip(one[kind], two[kind], strict=False):
                    if same["partitions"] == 0:
                        topic["partitions"] = 0


def _excuse_order_in_application(answer: Any) -> None:
    """So do the names of missing topics, and who has an endpoint."""
    for status in answer["status"]:
        status["status_detail"] = sorted(status["status_detail"].replace(", ", " ").split())
    if answer["partitions_by_user_endpoint"]:
        answer["partitions_by_user_endpoint"].sort(key=lambda each: each["user_endpoint"]["host"])


def _each(ours: Any, theirs: Any, topics: str = "topics", partitions: str = "partitions") -> Iterator[tuple[Any, Any]]:
    """Both answers for a partition."""
    for mine, other in zip(ours.get(topics, ()), theirs.get(topics, ()), strict=False):
        yield from zip(mine[partitions], other[partitions], strict=False)


def _excuse_unknown_codec(ours: Any, theirs: Any) -> None:
    """Kafka fails at a codec that there is not, and at records that cannot be unpacked; here they are refused."""
    for one, two in _each(ours, theirs, "responses", "partition_responses"):
        if two["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR and one["error_code"] in REFUSALS:
            two.update(one)


def _excuse_times_below_the_start(step: Step, ours: Any, theirs: Any) -> None:
    """Kafka looks into the first segment whose largest time is late enough, and finds nothing when that record is below the log
    start offset or behind the last stable offset; here the search goes on. So it is with the largest time of all."""
    asked = {(topic.name, each.partition_index): each.timestamp for topic in step.body.topics for each in topic.partitions}
    for mine, other in zip(ours["topics"], theirs["topics"], strict=True):
        for one, two in zip(mine["partitions"], other["partitions"], strict=True):
            timestamp = asked[mine["name"], one["partition_index"]]
            looks = not isinstance(timestamp, int) or timestamp >= 0
            has_larger = one["offset"] == -1 or two["offset"] < one["offset"]  # -1: all records are below the start
            is_below = has_larger if timestamp == MAX_TIMESTAMP else looks and two["offset"] == -1
            if is_below and two["error_code"] == one["error_code"] == 0:
                two.update(one)


def _excuse_generation_of_no_member(ours: Any, theirs: Any) -> None:
    """A group that has offsets and never had members is none here when somebody names a generation of it."""
    for one, two in _each(ours, theirs):
        if (one["error_code"], two["error_code"]) == (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            two.update(one)


def _excuse_protocol_of_no_member(theirs: Any) -> None:
    """Of an unknown member without a protocol type, Kafka says that the protocol does not fit."""
    if theirs["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        theirs["error_code"] = ErrorCode.UNKNOWN_MEMBER_ID


def _excuse_sizes(step: Step, ours: Any, theirs: Any) -> None:
    """A batch that a broker compresses has not the same size in both, so that more or fewer fit into the bytes asked for; and
    an answer ends with a segment, which Kafka may have begun for a batch that it refused."""
    for mine, other in zip(ours.get("responses", ()), theirs.get("responses", ()), strict=False):
        has_rolled = not step.rolled.isdisjoint([mine["topic"], mine["topic_id"]])
        for one, two in zip(mine["partitions"], other["partitions"], strict=False):
            count = min(len(one["records"] or ()), len(two["records"] or ()))
            is_compressed = count and any(batch["attributes"] & COMPRESSION_MASK for batch in one["records"] + two["records"])
            if is_compressed or (count and has_rolled):
                if len(one["records"]) != len(two["records"]):
                    one["aborted_transactions"] = two["aborted_transactions"]
                del one["records"][count:], two["records"][count:]


def _excuse_refused_zstd(ours: Any, theirs: Any) -> None:
    """Kafka gives batches of zstd to a client whose version does not know them, unless the topic is configured so."""
    for one, two in _each(ours, theirs, "responses"):
        if one["error_code"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            two.update(one)
