"""What a client may do, by ACLs: one table for all APIs, so that a handler knows nothing of it. Source: Kafka's KafkaApis,
ControllerApis, AclApis and AuthHelper (4.1), and the table of operations in Kafka's documentation.

| table | a request |
|---|---|
| WHOLE | is refused as a whole: with the first rule's code that denies it |
| EACH | has elements that are refused, each with the error; the others are served |
| SEEN | has an answer out of which is taken what the client may not see |

SEEN is in `seen_answers`. What is wrong with an element itself is its handler's to say, as in Kafka, before anybody's rights
are looked at. Produce, Fetch, Metadata, DescribeTopicPartitions, AddPartitionsToTxn and the APIs of users and ACLs ask
`Call.authorize` themselves: what they do while they answer hangs on it (a topic that is made by asking for it, a limit that
counts what may be seen, partitions that join all or none). No other handler does. Where no ACLs are enforced nothing of this is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from .door import NO_TOPIC_ID, Call

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)

Rule = Callable[[Call, Any], ErrorCode | None]
"""(call, request) -> why it is refused."""
Judge = Callable[[Call, Any, Any], ErrorCode | None]
"""(call, request, an element of it) -> why that is refused."""


# ---- requests that are refused as a whole --------------------------------------------------------------------------------


def _on(kind: ResourceType, operation: AclOperation, field: str | None = None) -> Rule:
    """An operation on what a field of the request names; on the cluster without one. A null name is nobody's."""

    def rule(call: Call, body: Any) -> ErrorCode | None:
        name = CLUSTER_NAME if field is None else getattr(body, field)
        return None if name is None or call.authorize(operation, kind, name) else DENIED[kind]

    return rule


def _markers(call: Call, _body: Any) -> ErrorCode | None:
    may = call.authorize(AclOperation.ALTER, CLUSTER) or call.authorize(AclOperation.CLUSTER_ACTION, CLUSTER)
    return None if may else DENIED[CLUSTER]


def _idempotent_producer(call: Call, body: Any) -> ErrorCode | None:
    """Without a transactional id: whoever may write to any topic may have a producer id."""
    if body.transactional_id is not None or call.may_on_any(AclOperation.WRITE, TOPIC):
        return None
    return None if call.authorize(AclOperation.IDEMPOTENT_WRITE, CLUSTER) else DENIED[CLUSTER]


def _one_coordinator(call: Call, body: Any) -> ErrorCode | None:
    return None if body.coordinator_keys else _coordinator(call, body, body.key)


def _coordinator(call: Call, body: Any, key: str) -> ErrorCode | None:
    kind = {0: GROUP, 1: TRANSACTIONAL_ID}.get(body.key_type)
    return None if kind is None or call.authorize(AclOperation.DESCRIBE, kind, key) else DENIED[kind]


def _one_group(call: Call, body: Any) -> ErrorCode | None:
    return None if body.groups or call.authorize(AclOperation.DESCRIBE, GROUP, body.group_id) else DENIED[GROUP]


def _subscribed(call: Call, body: Any) -> ErrorCode | None:
    names = body.subscribed_topic_names or ()
    return None if all(call.authorize(AclOperation.DESCRIBE, TOPIC, name) for name in names) else DENIED[TOPIC]


_IN_GROUP: Final = _on(GROUP, AclOperation.READ, "group_id")
_IN_TRANSACTION: Final = _on(TRANSACTIONAL_ID, AclOperation.WRITE, "transactional_id")

WHOLE: Final[dict[ApiKey, tuple[Rule, ...]]] = {
    ApiKey.JOIN_GROUP: (_IN_GROUP,),
    ApiKey.SYNC_GROUP: (_IN_GROUP,),
    ApiKey.HEARTBEAT: (_IN_GROUP,),
    ApiKey.LEAVE_GROUP: (_IN_GROUP,),
    ApiKey.OFFSET_COMMIT: (_IN_GROUP,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_IN_GROUP, _subscribed),
    ApiKey.OFFSET_FETCH: (_one_group,),
    ApiKey.OFFSET_DELETE: (_on(GROUP, AclOperation.DELETE, "group_id"),),
    ApiKey.FIND_COORDINATOR: (_one_coordinator,),
    ApiKey.INIT_PRODUCER_ID: (_IN_TRANSACTION, _idempotent_producer),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_on(TRANSACTIONAL_ID, AclOperation.WRITE, "v3_and_below_transactional_id"),),
    ApiKey.ADD_OFFSETS_TO_TXN: (_IN_TRANSACTION, _IN_GROUP),
    ApiKey.TXN_OFFSET_COMMIT: (_IN_TRANSACTION, _IN_GROUP),
    ApiKey.END_TXN: (_IN_TRANSACTION,),
    ApiKey.WRITE_TXN_MARKERS: (_markers,),
    ApiKey.DESCRIBE_LOG_DIRS: (_on(CLUSTER, AclOperation.DESCRIBE),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.ELECT_LEADERS: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_on(CLUSTER, AclOperation.DESCRIBE),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_on(CLUSTER, AclOperation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_on(CLUSTER, AclOperation.ALTER_CONFIGS),),
    ApiKey.UPDATE_FEATURES: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.LIST_CONFIG_RESOURCES: (_on(CLUSTER, AclOperation.DESCRIBE_CONFIGS),),
}


# ---- elements that are refused ---------------------------------------------------------------------------------------------


@attrs.frozen
class Each:
    """A list of a request whose elements are looked at one by one."""

    path: str
    judge: Judge
    once: Callable[[Any], Hashable] | None = None
    """What elements have in common that are there twice: those are not judged, their handler refuses them."""


def _named(kind: ResourceType, operation: AclOperation, field: str | None = None) -> Judge:
    """An operation on what a field of the element names, or the element itself."""

    def judge(call: Call, _body: Any, element: Any) -> ErrorCode | None:
        name = element if field is None else getattr(element, field)
        return None if call.authorize(operation, kind, name) else DENIED[kind]

    return judge


def _topic(operation: AclOperation) -> Judge:
    """The same for a topic that may be meant by its id; one that is not known is the handler's matter."""

    def judge(call: Call, _body: Any, element: Any) -> ErrorCode | None:
        name, topic_id = element.name, element.topic_id
        if topic_id != NO_TOPIC_ID:
            try:
                name = call.broker.topic_named(topic_id)
            except RequestError:
                return None
        return None if call.authorize(operation, TOPIC, name or "") else DENIED[TOPIC]

    return judge


def _new_topic(call: Call, _body: Any, element: Any) -> ErrorCode | None:
    may = call.authorize(AclOperation.CREATE, CLUSTER, quietly=True) or call.authorize(AclOperation.CREATE, TOPIC, element.name)
    return None if may else DENIED[TOPIC]


def _old_topic(call: Call, name: str | None, topic_id: bytes) -> ErrorCode | None:
    """One to delete. Whoever may see that it is not there is told so."""
    if (name is None) == (topic_id == NO_TOPIC_ID) or call.authorize(AclOperation.DELETE, CLUSTER, quietly=True):
        return None
    try:
        known = call.broker.topic_named(topic_id) if name is None else name
    except RequestError:
        return None
    if call.authorize(AclOperation.DELETE, TOPIC, known):
        return None
    is_seen_missing = known not in call.broker.topics() and call.authorize(AclOperation.DESCRIBE, TOPIC, known, quietly=True)
    return None if is_seen_missing else DENIED[TOPIC]


_CONFIGURED: Final = {2: TOPIC, 32: GROUP, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER}
"""By the type of a configuration; there are no others."""
BROKER_TYPES: Final = (4, 8)


def _configs(call: Call, operation: AclOperation, element: Any) -> ErrorCode | None:
    kind = _CONFIGURED.get(element.resource_type)
    if kind is None:
        return None
    name = CLUSTER_NAME if kind is CLUSTER else element.resource_name
    return None if call.authorize(operation, kind, name) else DENIED[kind]


def _described_configs(call: Call, _body: Any, element: Any) -> ErrorCode | None:
    return _configs(call, AclOperation.DESCRIBE_CONFIGS, element)


def _altered_configs(call: Call, _body: Any, element: Any) -> ErrorCode | None:
    """The broker that a client has asked looks at values that are missing and at the names of brokers, the controller at
    rights."""
    nodes = ["", *(str(node.node_id) for node in call.door.nodes(call.session))]
    is_elsewhere = element.resource_type in BROKER_TYPES and element.resource_name not in nodes
    if is_elsewhere or any(each.value is None and not _is_deletion(each) for each in element.configs):
        return None
    return _configs(call, AclOperation.ALTER_CONFIGS, element)


def _is_deletion(config: Any) -> bool:
    return getattr(config, "config_operation", None) == 1


def _name(element: Any) -> Hashable:
    return (element.name, getattr(element, "topic_id", NO_TOPIC_ID))


def _itself(element: Any) -> Hashable:
    return str(element)


def _resource(element: Any) -> Hashable:
    return (element.resource_type, element.resource_name)


EACH: Final[dict[ApiKey, tuple[Each, ...]]] = {
    ApiKey.LIST_OFFSETS: (Each("topics", _named(TOPIC, AclOperation.DESCRIBE, "name")),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Each("topics", _named(TOPIC, AclOperation.DESCRIBE, "topic")),),
    ApiKey.OFFSET_COMMIT: (Each("topics", _topic(AclOperation.READ)),),
    ApiKey.TXN_OFFSET_COMMIT: (Each("topics", _named(TOPIC, AclOperation.READ, "name")),),
    ApiKey.OFFSET_DELETE: (Each("topics", _named(TOPIC, AclOperation.READ, "name")),),
    ApiKey.OFFSET_FETCH: (Each("groups", _named(GROUP, AclOperation.DESCRIBE, "group_id")),),
    ApiKey.DESCRIBE_GROUPS: (Each("groups", _named(GROUP, AclOperation.DESCRIBE)),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Each("group_ids", _named(GROUP, AclOperation.DESCRIBE)),),
    ApiKey.DELETE_GROUPS: (Each("groups_names", _named(GROUP, AclOperation.DELETE)),),
    ApiKey.FIND_COORDINATOR: (Each("coordinator_keys", _coordinator),),
    ApiKey.CREATE_TOPICS: (Each("topics", _new_topic, once=_name),),
    ApiKey.DELETE_TOPICS: (
        Each("topics", lambda call, _, topic: _old_topic(call, topic.name, topic.topic_id), once=_name),
        Each("topic_names", lambda call, _, name: _old_topic(call, name, NO_TOPIC_ID), once=_itself),
    ),
    ApiKey.CREATE_PARTITIONS: (Each("topics", _named(TOPIC, AclOperation.ALTER, "name"), once=_name),),
    ApiKey.DELETE_RECORDS: (Each("topics", _named(TOPIC, AclOperation.DELETE, "name")),),
    ApiKey.DESCRIBE_PRODUCERS: (Each("topics", _named(TOPIC, AclOperation.READ, "name")),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Each("transactional_ids", _named(TRANSACTIONAL_ID, AclOperation.DESCRIBE)),),
    ApiKey.DESCRIBE_CONFIGS: (Each("resources", _described_configs),),
    ApiKey.ALTER_CONFIGS: (Each("resources", _altered_configs, once=_resource),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (Each("resources", _altered_configs, once=_resource),),
}
