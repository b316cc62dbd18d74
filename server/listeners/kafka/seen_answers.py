"""Hides what a client may not see in answers, by ACLs. Source: Kafka's KafkaApis and ControllerApis (4.1).

`guard` says which function changes the answer to which API, in steps; the function gets a call, its request and the answer. The
table of docs/reference/rights.md has the docstrings of these functions. Nothing of this is logged as a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....protocol.errors import RequestError
from ....protocol.kafka.authorization import DENIED, AclOperation
from ..access.rules import CLUSTER, GROUP, JUDGED_PER_PAUSE, TOPIC, TRANSACTION, Steps, divide_steps, each_steps, seen_steps
from .door import NO_TOPIC_ID, Call, reported


def _name_of(call: Call, topic: Any) -> str | None:
    """A topic's name, also where its id stands for it; None when nobody has that id."""
    if topic.topic_id == NO_TOPIC_ID:
        return str(topic.name) or None
    try:
        return call.broker.topics.named(topic.topic_id)
    except RequestError:
        return None


def offsets(call: Call, body: Any, answer: Any) -> Steps[None]:
    """Hide topics without DESCRIBE TOPIC."""
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
    return name is None or call.may_see(TOPIC, name)


def listed_groups(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide groups without DESCRIBE GROUP, unless the client has DESCRIBE CLUSTER."""
    if not call.may_see(CLUSTER):
        answer.groups = yield from seen_steps(answer.groups, lambda each: call.may_see(GROUP, each.group_id))


def listed_transactions(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide transactional ids without DESCRIBE TRANSACTIONAL_ID."""

    def may_see(each: Any) -> bool:
        return call.may_see(TRANSACTION, each.transactional_id)

    answer.transaction_states = yield from seen_steps(answer.transaction_states, may_see)


def transactions(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide topics without DESCRIBE TOPIC."""
    for each in answer.transaction_states:
        each.topics = yield from seen_steps(each.topics, lambda topic: call.may_see(TOPIC, topic.topic))
        yield


def described_groups(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide groups that read topics without DESCRIBE TOPIC, whose error says so."""

    def topics_of(group: Any) -> set[str]:
        names = ("assignment", "target_assignment")
        assignments = [getattr(member, name) for member in group.members for name in names if hasattr(member, name)]
        return {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}

    yield from _hide_groups(call, answer, topics_of, "The group has topics that the client is not authorized to describe.")


def streams_groups(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide groups whose topology has topics without DESCRIBE TOPIC, whose error says so."""

    def topics_of(group: Any) -> set[str]:
        parts = () if group.topology is None else group.topology.subtopologies or ()
        return {
            name
            for part in parts
            for name in (
                *part.source_topics,
                *part.repartition_sink_topics,
                *(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics)),
            )
        }

    why = "The described group uses topics that the client is not authorized to describe."
    yield from _hide_groups(call, answer, topics_of, why)


def _hide_groups(call: Call, answer: Any, topics_of: Callable[[Any], set[str]], why: str) -> Steps[None]:
    """Put an error without details in place of each group that has topics that the client may not describe."""
    for place, group in enumerate(answer.groups):
        if not all(call.may_see(TOPIC, name) for name in sorted(topics_of(group))):
            answer.groups[place] = reported(type(group), RequestError(why, DENIED[TOPIC]), group_id=group.group_id)
        yield


def share_offsets(call: Call, body: Any, answer: Any) -> Steps[None]:
    """Hide topics without DESCRIBE TOPIC."""
    named = {(group.group_id, topic.topic_name) for group in body.groups for topic in group.topics or ()}
    for group in answer.groups:
        topics, group.topics = group.topics, []
        for topic in topics:
            is_seen = call.may_see(TOPIC, topic.topic_name)
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
    """Hide the configuration without DESCRIBE_CONFIGS TOPIC."""

    def hide(topic: Any) -> None:
        if not topic.error_code and not call.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, quietly=True):
            topic.topic_config_error_code, topic.configs = DENIED[TOPIC], None
            topic.num_partitions = topic.replication_factor = -1

    yield from each_steps(answer.topics, hide)


def old_topics(call: Call, _body: Any, answer: Any) -> Steps[None]:
    """Hide the name of a topic that is deleted by id, without DESCRIBE TOPIC."""

    def tell(topic: Any) -> None:
        if topic.error_code == DENIED[TOPIC] and topic.name is None:
            name = _name_of(call, topic)
            topic.name = name if name is not None and call.may_see(TOPIC, name) else None

    yield from each_steps(answer.responses, tell)
