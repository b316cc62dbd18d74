"""Leader hints for requests that failed with NOT_LEADER_OR_FOLLOWER. Source: KIP-951; Kafka's KafkaApis.getCurrentLeader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import ApiKey
from ....protocol.limits import INT16_MAX
from ....protocol.types import TopicPartition
from ...listeners.kafka.door import NO_TOPIC_ID, KafkaDoor
from ...listeners.kafka.error_answers import element_of
from ...listeners.kafka.session import Turn

_UNKNOWN: Final = -1
_FIRST_VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}


def name_leaders(door: KafkaDoor, turn: Turn, response: Any) -> Any:
    """Put the leader of each partition that failed for want of one into the response, and the addresses of these nodes."""
    api = turn.request.api
    if response is None or turn.request.version < _FIRST_VERSIONS.get(api.key, INT16_MAX):
        return response
    is_produce = api.key is ApiKey.PRODUCE
    leaders = set()
    for topic in response.responses:
        for each in topic.partition_responses if is_produce else topic.partitions:
            if each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader_id, epoch = _leader(door, topic, each.index if is_produce else each.partition_index)
                each.current_leader = type(each.current_leader)(leader_id=leader_id, leader_epoch=epoch)
                leaders.add(leader_id)
    endpoint = element_of(api.response, "node_endpoints")
    named = [each for each in door.nodes(turn.session) if each.node_id in leaders]
    response.node_endpoints = [endpoint(node_id=each.node_id, host=each.host, port=each.port) for each in named]
    return response


def _leader(door: KafkaDoor, topic: Any, partition: int) -> tuple[int, int]:
    """Its number, and the epoch in which it leads."""
    try:
        if (topic_id := topic.topic_id) != NO_TOPIC_ID:
            name = door.broker.topics.named(topic_id)
        else:
            name = topic.name if hasattr(topic, "name") else topic.topic
        epoch = door.broker.reader.snapshot(TopicPartition(name, partition)).leader_epoch
    except RequestError:
        return _UNKNOWN, _UNKNOWN
    return door.leader_of(name, partition), epoch
