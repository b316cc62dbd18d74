"""Answers about share groups that differ on purpose or by chance; each stands in docs/kafka-compatibility.md."""

from __future__ import annotations

from typing import Any

from triolog.protocol.kafka.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

from ..world import Step
from .world import BRIEF


def excuse(step: Step, ours: Any, theirs: Any) -> None:
    if isinstance(step.body, ShareGroupHeartbeatRequest):
        ours["assignment"] = theirs["assignment"]
    if isinstance(step.body, ShareFetchRequest):
        _leave_out_nothing(ours)
        _leave_out_nothing(theirs)
        _excuse_unasked_acknowledgements(ours, theirs)
    if isinstance(step.body, DescribeShareGroupOffsetsRequest):
        _excuse_starts(ours, theirs)
    if isinstance(step.body, ShareGroupDescribeRequest):
        for one, two in zip(ours["groups"], theirs["groups"], strict=True):
            _excuse_order(one, two)
            _excuse_who_has_which(one, two)


def _leave_out_nothing(answer: Any) -> None:
    """Kafka tells some partitions of which there is nothing to tell."""
    for topic in answer["responses"]:
        topic["partitions"] = [each for each in topic["partitions"] if _says_something(each)]
    answer["responses"] = [topic for topic in answer["responses"] if topic["partitions"]]


def _excuse_unasked_acknowledgements(ours: Any, theirs: Any) -> None:
    """Beside a partition whose records are acknowledged, Kafka tells twice of one that there is not."""
    for mine, other in zip(ours["responses"], theirs["responses"], strict=False):
        for one, two in zip(mine["partitions"], other["partitions"], strict=False):
            if one["error_code"] == two["error_code"] == two["acknowledge_error_code"] and not one["acknowledge_error_code"]:
                two["acknowledge_error_code"] = 0


def _says_something(partition: Any) -> bool:
    return bool(partition["error_code"] or partition["acknowledge_error_code"] or partition["acquired_records"])


def _excuse_starts(ours: Any, theirs: Any) -> None:
    """When locks end, Kafka stores the start of before, and of what is done with behind it all, some or nothing."""
    for mine, other in zip(ours["groups"], theirs["groups"], strict=True):
        if mine["group_id"] != BRIEF or len(mine["topics"]) != len(other["topics"]):
            continue
        for topic, same in zip(mine["topics"], other["topics"], strict=True):
            for one, two in zip(topic["partitions"], same["partitions"], strict=True):
                behind = one["start_offset"] - two["start_offset"]
                if behind > 0 and two["start_offset"] >= 0 and 0 <= two["lag"] - one["lag"] <= behind:
                    two["start_offset"], two["lag"] = one["start_offset"], one["lag"]


def _excuse_order(*sides: Any) -> None:
    """Members, and the topics of each, come in the order of Kafka's hash maps."""
    for group in sides:
        group["members"].sort(key=lambda member: repr(member["member_id"]))
        for member in group["members"]:
            member["subscribed_topic_names"].sort()


def _excuse_who_has_which(ours: Any, theirs: Any) -> None:
    """Kafka gives out partitions in the order of the hashes of their topics' ids, which are chosen by chance."""
    if _assigned(ours) == _assigned(theirs) and len(ours["members"]) == len(theirs["members"]):
        for one, two in zip(ours["members"], theirs["members"], strict=True):
            one["assignment"] = two["assignment"]


def _assigned(group: Any) -> set[tuple[str, int]]:
    return {
        (topic["topic_name"], number)
        for member in group["members"]
        for topic in member["assignment"]["topic_partitions"]
        for number in topic["partitions"]
    }
