"""ShareAcknowledge: what a member says of records, without a fetch. Source: KIP-932, KIP-1222."""

from __future__ import annotations

from ....protocol.errors import RequestError
from ....protocol.kafka.messages.share_groups import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareLeaderIdAndEpoch,
)
from ...broker import FINAL_SHARE_EPOCH
from .door import Call, error_code, error_message
from .share_acknowledgements import acknowledge, member_of, said_in


async def share_acknowledge(call: Call, body: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Answered when it is stored. At the final epoch what the member still has is given back too."""
    shares = call.broker.shares
    try:
        group, member = member_of(body)
        shares.sessions_at(call.door.node_id).acknowledge(group, member, body.share_session_epoch)
    except RequestError as exc:
        return ShareAcknowledgeResponse(error_code=exc.code, error_message=exc.message, responses=[], node_endpoints=[])
    outcome = await acknowledge(call, member, said_in(group, body), renews=body.is_renew_ack)
    if body.share_session_epoch == FINAL_SHARE_EPOCH:
        await shares.release_member(group, member, call.door.node_id)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for key, error in outcome.items():
        topic = topics.setdefault(key.topic_id, ShareAcknowledgeTopicResponse(topic_id=key.topic_id, partitions=[]))
        topic.partitions.append(
            ShareAcknowledgePartitionData(
                partition_index=key.partition,
                error_code=error_code(error),
                error_message=error_message(error),
                current_leader=ShareLeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.config_of(group).record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[],
    )
