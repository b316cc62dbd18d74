"""What a heartbeat has to say, whatever group it is for, and what a member's request has to agree with (KIP-848; Kafka:
throwIfConsumerGroupHeartbeatRequestIsInvalid, ConsumerGroup.validateOffsetCommit, validateOffsetFetch).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnsupportedVersionError
from ...protocol.types import TopicPartition
from .consumer_assignors import ASSIGNORS
from .consumer_group import ConsumerGroup
from .consumer_member import ConsumerMember
from .consumer_values import JOIN_EPOCH, LEAVE_STATIC_EPOCH, NO_TIMEOUT, ConsumerGroupSettings, ConsumerHeartbeat, TopicImage
from .values import FIRST_COMMIT_WITH_EPOCHS, NO_GENERATION, CommittingMember


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    needs_member_id = request.makes_member_id or request.member_epoch != JOIN_EPOCH
    if needs_member_id and not request.member_id.strip():
        raise InvalidRequestError("MemberId can't be empty.")
    if not request.group_id.strip():
        raise InvalidRequestError("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise InvalidRequestError("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequestError("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise RequestError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
            ErrorCode.UNSUPPORTED_ASSIGNOR,
        )


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise InvalidRequestError("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def check_room(group: ConsumerGroup, member_id: str, settings: ConsumerGroupSettings) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for one who is not in yet."""
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise RequestError(
            f"group {group.group_id!r} has {len(group.members)} members, {settings.max_size} are allowed",
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        )


def unknown_member(group_id: str, who: str) -> RequestError:
    return RequestError(f"{who} is not a member of group {group_id!r}", ErrorCode.UNKNOWN_MEMBER_ID)


def check_commit(
    group: ConsumerGroup,
    who: CommittingMember,
    partitions: Iterable[TopicPartition],
    topics: TopicImage,
    *,
    is_transactional: bool,
) -> None:
    """Whether offsets may be committed: by a member at its epoch, by one at an epoch since which it has had the partitions
    (KIP-1251), by anybody while there are no members, and in a transaction by who does not say that he is a member. Raises
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION."""
    member_id, member_epoch, version = who.member_id, who.generation, who.version
    if member_epoch < 0 and not group.members:
        return
    if is_transactional and member_epoch == NO_GENERATION and not member_id and who.group_instance_id is None:
        return
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, f"{member_id!r}")
    if not is_transactional and version is not None and version < FIRST_COMMIT_WITH_EPOCHS:
        raise UnsupportedVersionError(
            f"OffsetCommit version {version}: members of group {group.group_id!r} need {FIRST_COMMIT_WITH_EPOCHS} or above"
        )
    if member_epoch > member.epoch:
        _check_epoch(group.group_id, member_id, member_epoch, member.epoch)
    if member_epoch < member.epoch:
        for topic_partition in partitions:
            _check_since(member, member_epoch, topic_partition, topics)


def _check_since(member: ConsumerMember, member_epoch: int, topic_partition: TopicPartition, topics: TopicImage) -> None:
    topic = topics.find(topic_partition.topic)
    since = None if topic is None else member.since.get((topic.topic_id, topic_partition.partition))
    if since is None or member_epoch < since:
        has = "has not got" if since is None else f"has had since epoch {since}"
        raise RequestError(
            f"member {member.member_id!r} comes with epoch {member_epoch}, its epoch is {member.epoch}, and it {has} "
            f"{topic_partition}",
            ErrorCode.STALE_MEMBER_EPOCH,
        )


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Whether committed offsets may be read: by a member at its epoch, or by somebody who does not say that he is one. Raises
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    if member_id is None and member_epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise unknown_member(group.group_id, f"{member_id!r}")
    _check_epoch(group.group_id, member.member_id, member_epoch, member.epoch)


def _check_epoch(group_id: str, member_id: str, said: int, known: int) -> None:
    if said != known:
        raise RequestError(
            f"member {member_id!r} of group {group_id!r} comes with epoch {said}, its epoch is {known}; it has to look at the "
            "answer to its next heartbeat",
            ErrorCode.STALE_MEMBER_EPOCH,
        )
