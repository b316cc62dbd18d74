"""The permissions of clients over the native protocol, by ACLs: one table for all calls, so that their handlers know nothing of
it. Each call needs what its equivalent of Kafka's protocol needs.

Beside the rules of `access.rules`, `sees` selects the visible ones of many names. Handlers that list names call it, because
their lists are limited.

`hide` is a function that removes what the client may not see: it gets the client and the answer's body. The table of
docs/reference/rights.md has the docstrings of these functions. Nothing of this is logged as a refusal.

`AUDITED` has the calls that change topics, groups, quotas or configuration, and what they name: for the audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.errors import AuthorizationError
from ....protocol.kafka.authorization import DENIED, AclOperation, ResourceType
from ....protocol.kafka.authorization import AclOperation as Op
from ....protocol.native import messages
from ....protocol.native.kinds import Body
from ....protocol.types import TopicPartition
from ..access import rules
from ..access.rules import (
    CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    GROUP,
    PRODUCER_ID,
    TOPIC,
    TRANSACTION,
    Asker,
    Denied,
    Rule,
    Steps,
    check_steps,
    denied_configs,
    divide_steps,
    finish,
    needs,
    right,
)


def topics(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC, where all are asked for, and configurations without DESCRIBE_CONFIGS TOPIC."""
    body["topics"] = seen = [topic for topic in body["topics"] if asker.may_see(TOPIC, topic["name"])]
    for topic in seen:
        if topic["config"] and not asker.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic["name"], quietly=True):
            topic["config"] = {}


def topics_with_gaps(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC, where all are asked for."""
    body["topics"] = [topic for topic in body["topics"] if asker.may_see(TOPIC, topic["name"])]


def offsets(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC, where all are asked for."""
    body["partitions"] = [each for each in body["partitions"] if asker.may_see(TOPIC, each["topic"])]


def listed_groups(asker: Asker, body: Body) -> None:
    """Hide groups without DESCRIBE GROUP, unless the client has DESCRIBE CLUSTER."""
    if not asker.may_see(CLUSTER):
        body["groups"] = [group for group in body["groups"] if asker.may_see(GROUP, group)]


def described_groups(asker: Asker, body: Body) -> None:
    """Hide groups that read topics without DESCRIBE TOPIC, whose error says so."""
    body["groups"] = [each if _may_see_topics(asker, each) else _hidden(each["group"]) for each in body["groups"]]


def _may_see_topics(asker: Asker, group: Body) -> bool:
    read = [each["topic"] for member in group["members"] for each in member["assignment"]]
    return all(asker.may_see(TOPIC, topic) for topic in {*read, *(each["topic"] for each in group["shared"])})


def _hidden(group: str) -> Body:
    why = "The group has topics that the client is not authorized to describe."
    return messages.DescribedGroup(group, AuthorizationError(why, DENIED[TOPIC])).to_body()


def described_transactions(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC."""
    for each in body["transactions"]:
        each["partitions"] = [place for place in each["partitions"] if asker.may_see(TOPIC, place["topic"])]


def transaction(asker: Asker, name: str) -> bool:
    """Hide transactional ids without DESCRIBE TRANSACTIONAL_ID."""
    return asker.may_see(TRANSACTION, name)


@attrs.frozen(kw_only=True)
class Each(rules.Each):
    """The list of a request whose elements are looked at one by one."""

    key: str
    """Of the list, in the request and in the answer."""
    entry: type
    """An element's entry in the answer."""
    changes: dict[str, Any] = attrs.field(factory=dict)
    """What else is different in the request once something is refused."""

    def refusal(self, asker: Asker, element: Any, kind: ResourceType) -> Body:
        """The entry of an element that is refused."""
        error = AuthorizationError(f"{asker.session.principal} may not {self.says} {name_of(element)}", DENIED[kind])
        is_partition = hasattr(element, "topic")
        place = (element.topic, element.partition) if is_partition else (name_of(element),)
        body: Body = self.entry(*place, error).to_body()
        return body


@attrs.frozen
class Rules(rules.Rules[Each]):
    """The rules of one call."""

    sees: Callable[[Asker, str], bool] | None = None


def name_of(element: Any) -> str:
    """Of the topic or the group that an element is about."""
    if isinstance(element, str):
        return element
    return str(element.topic if hasattr(element, "topic") else element.name)


def _each(key: str, entry: type, operation: Op, kind: ResourceType = TOPIC, **changes: Any) -> Each:
    def denied(asker: Asker, _: Any, element: Any) -> Denied:
        return None if asker.authorize(operation, kind, name_of(element)) else kind

    return Each(right(operation, kind), denied, key=key, entry=entry, changes=changes)


def _may_create(asker: Asker, _: Any, element: Any) -> Denied:
    return None if asker.may_create_topic(name_of(element)) else TOPIC


def _may_delete(asker: Asker, _: Any, element: Any) -> Denied:
    name = name_of(element)
    is_there = asker.broker.topics.has_partition(TopicPartition(name, 0))
    return None if asker.may_delete_topic(name, is_there=is_there) else TOPIC


def _may_alter(asker: Asker, _: Any, element: Any) -> Denied:
    return TOPIC if denied_configs(asker, Op.ALTER_CONFIGS, TOPIC, name_of(element)) else None


def _named(operation: Op, kind: ResourceType, field: str, says: str = "") -> Rule:
    """On what one field names; None is nothing."""

    def names(message: Any) -> Iterable[str]:
        name = getattr(message, field)
        return () if name is None else (name,)

    return needs(operation, kind, names, says)


def _of_transaction(message: messages.CommitOffsetsRequest) -> Iterable[str]:
    return () if message.transaction is None else (message.transaction.transactional_id,)


def _of_producer(message: messages.EndTransactionRequest) -> Iterable[str]:
    return (message.producer.transactional_id,)


def _staged_topics(message: messages.CommitStageRequest) -> Iterable[str]:
    return dict.fromkeys(each.topic for task in message.tasks for each in task.partitions)


def _leased_topics(message: messages.LeaseSegmentsRequest) -> Iterable[str]:
    return dict.fromkeys(each.topic for each in message.partitions)


_APPLICATION: Final = " of the application"
_IN_TRANSACTION: Final = _named(Op.WRITE, TRANSACTION, "transactional_id", ", if one is named")
_OF_APPLICATION: Final = _named(Op.WRITE, TRANSACTION, "application", _APPLICATION)

RULES: Final[dict[type[messages.RequestMessage], Rules]] = {
    messages.HelloRequest: Rules(),
    messages.AuthenticateRequest: Rules(),
    messages.ProduceRequest: Rules((_IN_TRANSACTION,), _each("partitions", messages.ProducePartitionResponse, Op.WRITE)),
    messages.FetchRequest: Rules(each=_each("partitions", messages.FetchPartitionResponse, Op.READ, max_wait_ms=0)),
    messages.OffsetsForTimesRequest: Rules(each=_each("partitions", messages.OffsetsForTimesPartitionResponse, Op.DESCRIBE)),
    messages.ExplainRequest: Rules(each=_each("partitions", messages.ExplainPartitionResponse, Op.DESCRIBE)),
    messages.MetadataRequest: Rules(each=_each("topics", messages.TopicMetadata, Op.DESCRIBE), hide=topics),
    messages.CreateTopicsRequest: Rules(each=Each(CREATE_TOPIC, _may_create, key="topics", entry=messages.CreatedTopic)),
    messages.DeleteTopicsRequest: Rules(each=Each(DELETE_TOPIC, _may_delete, key="topics", entry=messages.TopicAnswer)),
    messages.DescribeConfigsRequest: Rules(each=_each("topics", messages.TopicConfig, Op.DESCRIBE_CONFIGS)),
    messages.CreatePartitionsRequest: Rules(each=_each("topics", messages.TopicAnswer, Op.ALTER)),
    messages.AlterConfigsRequest: Rules(each=Each("ALTER_CONFIGS TOPIC", _may_alter, key="topics", entry=messages.TopicAnswer)),
    messages.DeleteRecordsRequest: Rules(each=_each("partitions", messages.DeleteRecordsPartitionResponse, Op.DELETE)),
    messages.InitProducerRequest: Rules((_IN_TRANSACTION, PRODUCER_ID)),
    messages.EndTransactionRequest: Rules((needs(Op.WRITE, TRANSACTION, _of_producer),)),
    messages.ListTransactionsRequest: Rules(sees=transaction),
    messages.DescribeTransactionsRequest: Rules(
        each=_each("transactions", messages.DescribedTransaction, Op.DESCRIBE, TRANSACTION),
        hide=described_transactions,
    ),
    messages.DescribeProducersRequest: Rules(each=_each("partitions", messages.DescribeProducersPartitionResponse, Op.READ)),
    messages.AbortTransactionRequest: Rules((_named(Op.WRITE, TRANSACTION, "transactional_id"),)),
    messages.AbortHangingTransactionsRequest: Rules((needs(Op.ALTER, CLUSTER),)),
    messages.CommitOffsetsRequest: Rules(
        (needs(Op.WRITE, TRANSACTION, _of_transaction, ", if one is named"), _named(Op.READ, GROUP, "group")),
        _each("partitions", messages.PartitionAnswer, Op.READ),
    ),
    messages.FetchOffsetsRequest: Rules(
        (_named(Op.DESCRIBE, GROUP, "group"),),
        _each("partitions", messages.FetchOffsetsPartitionResponse, Op.DESCRIBE),
        offsets,
    ),
    messages.ListGroupsRequest: Rules(hide=listed_groups),
    messages.DescribeGroupsRequest: Rules(
        each=_each("groups", messages.DescribedGroup, Op.DESCRIBE, GROUP), hide=described_groups
    ),
    messages.DeleteGroupsRequest: Rules(each=_each("groups", messages.DeletedGroup, Op.DELETE, GROUP)),
    messages.AlterShareGroupOffsetsRequest: Rules(
        (_named(Op.READ, GROUP, "group"),), _each("partitions", messages.PartitionAnswer, Op.READ)
    ),
    messages.DescribeQuotasRequest: Rules((needs(Op.DESCRIBE_CONFIGS, CLUSTER),)),
    messages.AlterQuotasRequest: Rules((needs(Op.ALTER_CONFIGS, CLUSTER),)),
    messages.DescribeUsersRequest: Rules((needs(Op.DESCRIBE, CLUSTER),)),
    messages.AlterUsersRequest: Rules((needs(Op.ALTER, CLUSTER),)),
    messages.DescribeAclsRequest: Rules((needs(Op.DESCRIBE, CLUSTER),)),
    messages.CreateAclsRequest: Rules((needs(Op.ALTER, CLUSTER),)),
    messages.DeleteAclsRequest: Rules((needs(Op.ALTER, CLUSTER),)),
    messages.SplitPointsRequest: Rules(each=_each("partitions", messages.SplitPointsPartitionResponse, Op.DESCRIBE)),
    messages.StageRequest: Rules((_OF_APPLICATION,), _each("partitions", messages.StagePartitionResponse, Op.WRITE)),
    messages.CommitStageRequest: Rules(
        (_OF_APPLICATION, needs(Op.WRITE, TOPIC, _staged_topics, ", all that it has staged for"))
    ),
    messages.AbortStageRequest: Rules((_OF_APPLICATION,)),
    messages.LastCommitRequest: Rules((_named(Op.DESCRIBE, TRANSACTION, "application", _APPLICATION),)),
    messages.LeaseSegmentsRequest: Rules(
        (needs(Op.CLUSTER_ACTION, CLUSTER), needs(Op.READ, TOPIC, _leased_topics, ", all that are named"))
    ),
    messages.ListGapsRequest: Rules(each=_each("topics", messages.TopicGaps, Op.DESCRIBE), hide=topics_with_gaps),
    messages.AcceptGapsRequest: Rules(each=_each("partitions", messages.AcceptGapsPartitionResponse, Op.ALTER)),
    messages.DescribeSegmentsRequest: Rules(each=_each("partitions", messages.DescribeSegmentsPartitionResponse, Op.DESCRIBE)),
    messages.ListConnectionsRequest: Rules((needs(Op.DESCRIBE, CLUSTER),)),
    messages.StatisticsRequest: Rules((needs(Op.DESCRIBE, CLUSTER),)),
}


class Judged(NamedTuple):
    """The permitted part of a request."""

    message: messages.RequestMessage | None
    """What is served; None: everything is refused."""
    key: str = ""
    refused: tuple[tuple[int, Body], ...] = ()
    """Entries of the answer's list `key` for what is refused, each with where it stands."""
    hide: Callable[[Asker, Body], None] | None = None

    @property
    def changes_answer(self) -> bool:
        return bool(self.refused) or self.hide is not None

    def amend(self, asker: Asker, body: Body) -> None:
        """Make the answer to `message` the one to what was asked."""
        if self.hide is not None:
            self.hide(asker, body)
        if self.refused:
            kept, entries = iter(body.get(self.key, ())), list[Body]()
            for place, entry in self.refused:
                entries += islice(kept, place - len(entries))
                entries.append(entry)
            body[self.key] = [*entries, *kept]


def judge_steps(asker: Asker, message: Any) -> Steps[Judged]:
    """Return the permitted part of a request. Raises AuthorizationError if the client may have nothing of it."""
    rules = RULES[type(message)]
    yield from check_steps(asker, message, rules)
    each = rules.each
    elements = None if each is None else getattr(message, each.key)
    if each is None or not elements:
        return Judged(message, hide=rules.hide)
    kept, found = yield from divide_steps(elements, lambda element: each.denied(asker, message, element))
    if not found:
        return Judged(message, hide=rules.hide)
    refused = tuple((place, each.refusal(asker, element, kind)) for place, element, kind in found)
    served = attrs.evolve(message, **{each.key: tuple(kept), **each.changes}) if kept else None
    return Judged(served, each.key, refused, rules.hide)


def judged(asker: Asker, message: messages.RequestMessage) -> Judged:
    """The same, without pauses."""
    return finish(judge_steps(asker, message))


NATIVE: Final = "native"


def _topics(message: Any) -> Iterable[str]:
    return [each if isinstance(each, str) else each.name for each in message.topics]


def _configs(message: messages.AlterConfigsRequest) -> Iterable[str]:
    return [f"{topic.name}: {key}" for topic in message.topics for key in (*topic.set, *topic.delete)]


def _partitions(message: messages.DeleteRecordsRequest) -> Iterable[str]:
    return [f"{each.topic}-{each.partition}" for each in message.partitions]


def _gaps(message: messages.AcceptGapsRequest) -> Iterable[str]:
    return [f"{each.topic}-{each.partition}: offset {each.start_offset}" for each in message.partitions]


def _groups(message: messages.DeleteGroupsRequest) -> Iterable[str]:
    return message.groups


def _share_offsets(message: messages.AlterShareGroupOffsetsRequest) -> Iterable[str]:
    return [f"{message.group}: {topic}" for topic in dict.fromkeys(each.topic for each in message.partitions)]


def _users(message: messages.AlterUsersRequest) -> Iterable[str]:
    return [f"{'set' if each.iterations else 'delete'} {each.user}" for each in message.changes]


def _acl(acl: messages.AclEntry) -> str:
    what = f"{acl.operation} {acl.resource_type} {acl.pattern_type} {acl.resource_name}"
    return f"{acl.permission} {acl.principal} at {acl.host} {what}"


def _quotas(message: messages.AlterQuotasRequest) -> Iterable[str]:
    return [
        ", ".join(f"{part.type} {'<default>' if part.name is None else part.name}" for part in quota.entity)
        for quota in message.changes
    ]


def _transaction(message: messages.AbortTransactionRequest) -> Iterable[str]:
    return [f"transactional id {message.transactional_id}"]


def _hanging(message: messages.AbortHangingTransactionsRequest) -> Iterable[str]:
    return [f"{each.topic}-{each.partition}: producer {each.producer_id}" for each in message.partitions]


AUDITED: Final[dict[type[messages.RequestMessage], Callable[[Any], Iterable[str]]]] = {
    messages.CreateTopicsRequest: _topics,
    messages.DeleteTopicsRequest: _topics,
    messages.CreatePartitionsRequest: _topics,
    messages.AlterConfigsRequest: _configs,
    messages.DeleteRecordsRequest: _partitions,
    messages.AcceptGapsRequest: _gaps,
    messages.AbortTransactionRequest: _transaction,
    messages.AbortHangingTransactionsRequest: _hanging,
    messages.DeleteGroupsRequest: _groups,
    messages.AlterShareGroupOffsetsRequest: _share_offsets,
    messages.AlterQuotasRequest: _quotas,
    messages.AlterUsersRequest: _users,
    messages.CreateAclsRequest: lambda message: map(_acl, message.acls),
    messages.DeleteAclsRequest: lambda message: map(_acl, message.filters),
}
"""By call: what it names."""
