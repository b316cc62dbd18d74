"""The permissions of clients over the native protocol, by ACLs: one table for all calls, so that their handlers know nothing of
it. Each call needs what its equivalent of Kafka's protocol needs.

Beside the rules of `access.rules`, `sees` selects the visible ones of many names. Handlers that list names call it, because
their lists are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import attrs

from .....protocol.errors import AuthorizationError
from .....protocol.kafka.authorization import DENIED, ResourceType
from .....protocol.kafka.authorization import AclOperation as Op
from .....protocol.native import messages
from .....protocol.native.kinds import Body
from .....protocol.types import TopicPartition
from ...access import rules
from ...access.judging import Steps, divide_steps, finish
from ...access.rights import Asker
from ...access.rules import (
    CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    GROUP,
    PRODUCER_ID,
    TOPIC,
    TRANSACTION,
    Denied,
    Rule,
    check_steps,
    denied_configs,
    needs,
    right,
)
from . import seen_answers


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
    messages.MetadataRequest: Rules(each=_each("topics", messages.TopicMetadata, Op.DESCRIBE), hide=seen_answers.topics),
    messages.CreateTopicsRequest: Rules(each=Each(CREATE_TOPIC, _may_create, key="topics", entry=messages.CreatedTopic)),
    messages.DeleteTopicsRequest: Rules(each=Each(DELETE_TOPIC, _may_delete, key="topics", entry=messages.TopicAnswer)),
    messages.DescribeConfigsRequest: Rules(each=_each("topics", messages.TopicConfig, Op.DESCRIBE_CONFIGS)),
    messages.CreatePartitionsRequest: Rules(each=_each("topics", messages.TopicAnswer, Op.ALTER)),
    messages.AlterConfigsRequest: Rules(each=Each("ALTER_CONFIGS TOPIC", _may_alter, key="topics", entry=messages.TopicAnswer)),
    messages.DeleteRecordsRequest: Rules(each=_each("partitions", messages.DeleteRecordsPartitionResponse, Op.DELETE)),
    messages.InitProducerRequest: Rules((_IN_TRANSACTION, PRODUCER_ID)),
    messages.EndTransactionRequest: Rules((needs(Op.WRITE, TRANSACTION, _of_producer),)),
    messages.ListTransactionsRequest: Rules(sees=seen_answers.transaction),
    messages.DescribeTransactionsRequest: Rules(
        each=_each("transactions", messages.DescribedTransaction, Op.DESCRIBE, TRANSACTION),
        hide=seen_answers.described_transactions,
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
        seen_answers.offsets,
    ),
    messages.ListGroupsRequest: Rules(hide=seen_answers.listed_groups),
    messages.DescribeGroupsRequest: Rules(
        each=_each("groups", messages.DescribedGroup, Op.DESCRIBE, GROUP), hide=seen_answers.described_groups
    ),
    messages.DeleteGroupsRequest: Rules(each=_each("groups", messages.DeletedGroup, Op.DELETE, GROUP)),
    messages.AlterShareGroupOffsetsRequest: Rules(
        (_named(Op.READ, GROUP, "group"),), _each("partitions", messages.PartitionAnswer, Op.READ)
    ),
    messages.DescribeQuotasRequest: Rules((needs(Op.DESCRIBE_CONFIGS, CLUSTER),)),
    messages.AlterQuotasRequest: Rules((needs(Op.ALTER_CONFIGS, CLUSTER),)),
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
    messages.ListGapsRequest: Rules(each=_each("topics", messages.TopicGaps, Op.DESCRIBE), hide=seen_answers.topics_with_gaps),
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
