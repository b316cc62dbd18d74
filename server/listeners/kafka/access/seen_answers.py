"""What is taken out of answers that the client may not see, by ACLs. Source: Kafka's KafkaApis and ControllerApis (4.1).

Each function is given a call, its request and the answer, which it changes in steps; `guard` says for which API. Nothing of
this is logged as a refusal: nobody has asked for what is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .....protocol.errors import RequestError
from .....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from ...access.judging import JUDGED_PER_PAUSE, Steps, divide_steps, each_steps, seen_steps
from ..door import NO_TOPIC_ID, Call

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
        return str(topic.name) or None
    try:
        return call.broker.topics.named(topic.topic_id)
    except RequestError:
        return None


def offsets(call: Call, body: Any, answer: Any) -> Steps[None]:
    """Offsets of hidden topics become errors where the request names topics, and are left out where it asks for all."""
    asked = {each.group_id: each.topics is None for each in body.groups}
    groups = [(each, asked.get(each.group_id, False)) for each in answer.groups] or [(answer, body.topics is None)]
    for group, is_all in groups:
        seen, hidden = yield from divide_steps(group.topics, lambda topic: None if _may_see_offsets(call, topic) else True)
        if is_all:
            group.topics = seen
            continue
        yield from each_steps((each for _, topic, _ in hidden for each in topic.partitions), _hide_offset)


def _hide_offset(partition: Any) -> None:
    partition.committed_offset, partition.committed_leader_epoch, partition.metadata = -1, -1, ""
    partition.error_code = DENIED[TOPIC]


def _may_see_offsets(call: Call, topic: Any) -> bool:
    name = _name_of(call, topic) if hasattr(topic, "topic_id") else topic.name
    return name is None or _may_see(call, TOPIC, name)


def listed_groups(call: Call, _body: Any, answer: Any) -> Steps[None]:
    if not _may_see(call, CLUSTER, CLUSTER_NAME):
        answer.groups = yield from seen_steps(answer.groups, lambda each: _may_see(call, GROUP, each.group_id))


def listed_transactions(call: Call, _body: Any, answer: Any) -> Steps[None]:
    def may_see(each: Any) -> bool:
        return _may_see(call, TRANSACTIONAL_ID, each.transactional_id)

    answer.transaction_states = yield from seen_steps(answer.transaction_states, may_see)


def transactions(call: Call, _body: Any, answer: Any) -> Steps[None]:
    for each in answer.transaction_states:
        each.topics = yield from seen_steps(each.topics, lambda topic: _may_see(call, TOPIC, topic.topic))
        yield


def described_groups(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """A group with an assigned topic that the client may not describe is answered with an error and without details."""
    for place, each in enumerate(answer.groups):
        if not _may_see_assignments(call, each):
            answer.groups[place] = _hidden(each)
        yield


def _may_see_assignments(call: Call, group: Any) -> bool:
    assignments = (
        getattr(member, name)
        for member in group.members
        for name in ("assignment", "target_assignment")
        if hasattr(member, name)
    )
    names = {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
    return all(_may_see(call, TOPIC, name) for name in names)


def _hidden(group: Any) -> Any:
    return type(group)(
        error_code=DENIED[TOPIC],
        error_message="The group has topics that the client is not authorized to describe.",
        group_id=group.group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def streams_groups(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """A group whose topology has a topic that the client may not describe is answered with an error and without details."""
    for place, each in enumerate(answer.groups):
        if not _may_see_topology(call, each):
            answer.groups[place] = _hidden_streams_group(each)
        yield


def _may_see_topology(call: Call, group: Any) -> bool:
    parts = () if group.topology is None else group.topology.subtopologies or ()
    names = {
        name
        for part in parts
        for name in (
            *part.source_topics,
            *part.repartition_sink_topics,
            *(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics)),
        )
    }
    return all(_may_see(call, TOPIC, name) for name in sorted(names))


def _hidden_streams_group(group: Any) -> Any:
    return type(group)(
        error_code=DENIED[TOPIC],
        error_message="The described group uses topics that the client is not authorized to describe.",
        group_id=group.group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )


def share_offsets(call: Call, body: Any, answer: Any) -> Steps[None]:
    """Start offsets of hidden topics become errors where the request names topics, and are left out where it asks for all."""
    named = {(group.group_id, topic.topic_name) for group in body.groups for topic in group.topics or ()}
    for group in answer.groups:
        topics, group.topics = group.topics, []
        for topic in topics:
            is_seen = _may_see(call, TOPIC, topic.topic_name)
            if not is_seen:
                topic.topic_id = NO_TOPIC_ID
                yield from each_steps(topic.partitions, _hide_share_offset)
            if is_seen or (group.group_id, topic.topic_name) in named:
                group.topics.append(topic)
            if not len(group.topics) % JUDGED_PER_PAUSE:
                yield


def _hide_share_offset(partition: Any) -> None:
    partition.start_offset, partition.leader_epoch, partition.lag = -1, 0, -1
    partition.error_code, partition.error_message = DENIED[TOPIC], "Topic authorization failed."


def new_topics(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide the configuration of created topics from clients that may not describe it."""

    def hide(topic: Any) -> None:
        if not topic.error_code and not call.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, quietly=True):
            topic.topic_config_error_code, topic.configs = DENIED[TOPIC], None
            topic.num_partitions = topic.replication_factor = -1

    yield from each_steps(answer.topics, hide)


def old_topics(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Add the name of a topic whose deletion by id is refused, if the client may describe it."""

    def tell(topic: Any) -> None:
        if topic.error_code == DENIED[TOPIC] and topic.name is None:
            name = _name_of(call, topic)
            topic.name = name if name is not None and _may_see(call, TOPIC, name) else None

    yield from each_steps(answer.responses, tell)


SAYS: Final[dict[Callable[..., Steps[None]], str]] = {
    offsets: "topics without DESCRIBE TOPIC",
    listed_groups: "groups without DESCRIBE GROUP, unless the client has DESCRIBE CLUSTER",
    listed_transactions: "transactional ids without DESCRIBE TRANSACTIONAL_ID",
    transactions: "topics without DESCRIBE TOPIC",
    described_groups: "groups that read topics without DESCRIBE TOPIC, whose error says so",
    streams_groups: "groups whose topology has topics without DESCRIBE TOPIC, whose error says so",
    share_offsets: "topics without DESCRIBE TOPIC",
    new_topics: "the configuration without DESCRIBE_CONFIGS TOPIC",
    old_topics: "the name of a topic that is deleted by id, without DESCRIBE TOPIC",
}
"""What is left out, in words."""
