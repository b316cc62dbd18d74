"""What is taken out of answers that the client may not see, by ACLs. Source: Kafka's KafkaApis and ControllerApis (4.1).

`SEEN` says for each API what becomes of its answer; what is refused beforehand is in `guard`. Nothing of this is logged as a
refusal: nobody has asked for what is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....protocol.errors import RequestError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from ....protocol.kafka.messages.consumer_groups import ConsumerGroupDescribedGroup
from .door import NO_TOPIC_ID, Call

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def _may_see(call: Call, kind: ResourceType, name: str) -> bool:
    return call.authorize(AclOperation.DESCRIBE, kind, name, quietly=True)


def _name_of(call: Call, topic: Any) -> str | None:
    """A topic's name, also where its id stands for it; None when nobody has that id."""
    if topic.topic_id == NO_TOPIC_ID:
        return str(topic.name)
    try:
        return call.broker.topic_named(topic.topic_id)
    except RequestError:
        return None


def _offsets(call: Call, body: Any, answer: Any) -> None:
    """Offsets of topics that are asked for have the error, those of all topics are left out."""
    asked = {each.group_id: each.topics is None for each in body.groups}
    groups = [(each, asked.get(each.group_id, False)) for each in answer.groups] or [(answer, body.topics is None)]
    for group, is_all in groups:
        hidden = [topic for topic in group.topics if not _may_see_offsets(call, topic)]
        if is_all:
            group.topics = [topic for topic in group.topics if topic not in hidden]
            continue
        for partition in (each for topic in hidden for each in topic.partitions):
            partition.committed_offset, partition.committed_leader_epoch, partition.metadata = -1, -1, ""
            partition.error_code = DENIED[TOPIC]


def _may_see_offsets(call: Call, topic: Any) -> bool:
    name = _name_of(call, topic) if hasattr(topic, "topic_id") else topic.name
    return name is None or _may_see(call, TOPIC, name)


def _listed_groups(call: Call, _body: Any, answer: Any) -> None:
    if not _may_see(call, CLUSTER, CLUSTER_NAME):
        answer.groups = [each for each in answer.groups if _may_see(call, GROUP, each.group_id)]


def _listed_transactions(call: Call, _body: Any, answer: Any) -> None:
    states = answer.transaction_states
    answer.transaction_states = [each for each in states if _may_see(call, TRANSACTIONAL_ID, each.transactional_id)]


def _transactions(call: Call, _body: Any, answer: Any) -> None:
    for each in answer.transaction_states:
        each.topics = [topic for topic in each.topics if _may_see(call, TOPIC, topic.topic)]


def _described_groups(call: Call, _body: Any, answer: Any) -> None:
    """Whoever may not see a topic may not see in this way that it is there: of such a group nothing is told."""
    answer.groups = [each if _may_see_assignments(call, each) else _hidden(each.group_id) for each in answer.groups]


def _may_see_assignments(call: Call, group: Any) -> bool:
    assignments = (each for member in group.members for each in (member.assignment, member.target_assignment))
    names = {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
    return all(_may_see(call, TOPIC, name) for name in names)


def _hidden(group_id: str) -> ConsumerGroupDescribedGroup:
    return ConsumerGroupDescribedGroup(
        error_code=DENIED[TOPIC],
        error_message="The group has topics that the client is not authorized to describe.",
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _new_topics(call: Call, _body: Any, answer: Any) -> None:
    """Whoever may make a topic need not be allowed to see its configuration."""
    for topic in answer.topics:
        if not topic.error_code and not call.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, quietly=True):
            topic.topic_config_error_code, topic.configs = DENIED[TOPIC], None
            topic.num_partitions = topic.replication_factor = -1


def _old_topics(call: Call, _body: Any, answer: Any) -> None:
    """A topic whose deletion by its id is refused has its name for whoever may see it."""
    for topic in answer.responses:
        if topic.error_code == DENIED[TOPIC] and topic.name is None:
            name = _name_of(call, topic)
            topic.name = name if name is not None and _may_see(call, TOPIC, name) else None


SEEN: Final[dict[ApiKey, Callable[[Call, Any, Any], None]]] = {
    ApiKey.OFFSET_FETCH: _offsets,
    ApiKey.LIST_GROUPS: _listed_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _described_groups,
    ApiKey.LIST_TRANSACTIONS: _listed_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: _transactions,
    ApiKey.CREATE_TOPICS: _new_topics,
    ApiKey.DELETE_TOPICS: _old_topics,
}
"""(call, request, answer): the answer is changed."""
