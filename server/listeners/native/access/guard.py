"""What a client may do over the native protocol, by ACLs: one table for all calls, so that what answers them knows nothing
of it. Each call needs what its equivalent of Kafka's protocol needs.

| in RULES | a request |
|---|---|
| whole | is refused as a whole, with the code of the first right that is missing |
| each | has elements that are refused, each with the error where it stands; the others are served |
| hide | has an answer out of which is taken what the client may not see, see `seen_answers` |
| sees | lists names, of which the client may see those that this says: what lists them asks it, because it lists only so many |

Rights are asked for before anything is looked up, so that what is missing and what is forbidden look the same to whoever may
not describe it. Where no ACLs are enforced nothing of this is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import attrs

from .....protocol.errors import AuthorizationError
from .....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from .....protocol.native import messages
from .....protocol.native.kinds import Body
from .....protocol.types import TopicPartition
from ....broker import Broker, is_internal
from ...access.judging import divide_steps, finish
from ...access.rights import Asker
from . import seen_answers

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Names = Callable[[Any], Iterable[str]]
"""What a request names."""


class Need(NamedTuple):
    """A right that a whole request needs, on everything that `names` finds in it."""

    operation: AclOperation
    kind: ResourceType
    names: Names
    says: str = ""
    """What else there is to be said of it."""

    def check(self, asker: Asker, message: Any) -> None:
        """Raises AuthorizationError."""
        for name in self.names(message):
            asker.check_authorized(self.operation, self.kind, name)

    def __str__(self) -> str:
        return f"{self.operation.name} {self.kind.name}{self.says}"


class ProducerIdNeed:
    """What a producer id needs that belongs to no transactional id."""

    def check(self, asker: Asker, message: Any) -> None:
        """Raises AuthorizationError."""
        if message.transactional_id is None and not asker.may_have_producer_id():
            raise AuthorizationError(f"{asker.session.principal} may have no producer id", DENIED[CLUSTER])

    def __str__(self) -> str:
        return "WRITE on any TOPIC, or IDEMPOTENT_WRITE CLUSTER, without a transactional id"


@attrs.frozen
class Each:
    """The list of a request whose elements are looked at one by one."""

    key: str
    """Of the list, in the request and in the answer."""
    entry: type
    """An element's entry in the answer."""
    kind: ResourceType
    says: str
    """The right, as the table of all calls has it."""
    may: Callable[[Asker, Broker, str], bool]
    """Whether an element of this name is served."""
    changes: dict[str, Any] = attrs.field(factory=dict)
    """What else is different in the request once something is refused."""

    def refusal(self, asker: Asker, element: Any) -> Body:
        """The entry of an element that is refused."""
        error = AuthorizationError(f"{asker.session.principal} may not {self.says} {name_of(element)}", DENIED[self.kind])
        is_partition = hasattr(element, "topic")
        place = (element.topic, element.partition) if is_partition else (name_of(element),)
        body: Body = self.entry(*place, error).to_body()
        return body


def name_of(element: Any) -> str:
    """Of the topic or the group that an element is about."""
    if isinstance(element, str):
        return element
    return str(element.topic if hasattr(element, "topic") else element.name)


def _each(key: str, entry: type, operation: AclOperation, kind: ResourceType = TOPIC, **changes: Any) -> Each:
    def may(asker: Asker, _: Broker, name: str) -> bool:
        return asker.authorize(operation, kind, name)

    return Each(key, entry, kind, f"{operation.name} {kind.name}", may, changes)


def _may_create(asker: Asker, _: Broker, name: str) -> bool:
    return asker.may_create_topic(name)


def _may_delete(asker: Asker, broker: Broker, name: str) -> bool:
    return asker.may_delete_topic(name, is_there=broker.topics.has_partition(TopicPartition(name, 0)))


def _may_alter(asker: Asker, _: Broker, name: str) -> bool:
    """What is in the server's own topics is everybody's."""
    kind, what = (CLUSTER, CLUSTER_NAME) if is_internal(name) else (TOPIC, name)
    return asker.authorize(AclOperation.ALTER_CONFIGS, kind, what)


@attrs.frozen
class Rules:
    """The rules of one call, each kind as the module's table describes it."""

    whole: tuple[Need | ProducerIdNeed, ...] = ()
    each: Each | None = None
    hide: Callable[[Asker, Body], None] | None = None
    sees: Callable[[Asker, str], bool] | None = None


def _cluster(operation: AclOperation) -> Need:
    return Need(operation, CLUSTER, lambda _: (CLUSTER_NAME,))


def _named(operation: AclOperation, kind: ResourceType, field: str, says: str = "") -> Need:
    """On what one field names; None is nothing."""

    def names(message: Any) -> Iterable[str]:
        name = getattr(message, field)
        return () if name is None else (name,)

    return Need(operation, kind, names, says)


def _of_transaction(message: messages.CommitOffsetsRequest) -> Iterable[str]:
    return () if message.transaction is None else (message.transaction.transactional_id,)


def _of_producer(message: messages.EndTransactionRequest) -> Iterable[str]:
    return (message.producer.transactional_id,)


def _staged_topics(message: messages.CommitStageRequest) -> Iterable[str]:
    return dict.fromkeys(each.topic for task in message.tasks for each in task.partitions)


def _leased_topics(message: messages.LeaseSegmentsRequest) -> Iterable[str]:
    return dict.fromkeys(each.topic for each in message.partitions)


_APPLICATION: Final = " of the application"
_IN_TRANSACTION: Final = _named(AclOperation.WRITE, TRANSACTION, "transactional_id", ", if one is named")
_OF_APPLICATION: Final = _named(AclOperation.WRITE, TRANSACTION, "application", _APPLICATION)

RULES: Final[dict[type[messages.RequestMessage], Rules]] = {
    messages.HelloRequest: Rules(),
    messages.AuthenticateRequest: Rules(),
    messages.ProduceRequest: Rules(
        (_IN_TRANSACTION,), _each("partitions", messages.ProducePartitionResponse, AclOperation.WRITE)
    ),
    messages.FetchRequest: Rules(
        each=_each("partitions", messages.FetchPartitionResponse, AclOperation.READ, max_wait_ms=0),
    ),
    messages.OffsetsForTimesRequest: Rules(
        each=_each("partitions", messages.OffsetsForTimesPartitionResponse, AclOperation.DESCRIBE)
    ),
    messages.ExplainRequest: Rules(each=_each("partitions", messages.ExplainPartitionResponse, AclOperation.DESCRIBE)),
    messages.MetadataRequest: Rules(
        each=_each("topics", messages.TopicMetadata, AclOperation.DESCRIBE),
        hide=seen_answers.topics,
    ),
    messages.CreateTopicsRequest: Rules(
        each=Each("topics", messages.CreatedTopic, TOPIC, "CREATE TOPIC, or CREATE CLUSTER", _may_create)
    ),
    messages.DeleteTopicsRequest: Rules(
        each=Each("topics", messages.DeletedTopic, TOPIC, "DELETE TOPIC, or DELETE CLUSTER", _may_delete)
    ),
    messages.DescribeConfigsRequest: Rules(each=_each("topics", messages.TopicConfig, AclOperation.DESCRIBE_CONFIGS)),
    messages.CreatePartitionsRequest: Rules(each=_each("topics", messages.ChangedTopic, AclOperation.ALTER)),
    messages.AlterConfigsRequest: Rules(each=Each("topics", messages.ChangedTopic, TOPIC, "ALTER_CONFIGS TOPIC", _may_alter)),
    messages.DeleteRecordsRequest: Rules(
        each=_each("partitions", messages.DeleteRecordsPartitionResponse, AclOperation.DELETE)
    ),
    messages.InitProducerRequest: Rules((_IN_TRANSACTION, ProducerIdNeed())),
    messages.EndTransactionRequest: Rules((Need(AclOperation.WRITE, TRANSACTION, _of_producer),)),
    messages.ListTransactionsRequest: Rules(sees=seen_answers.transaction),
    messages.DescribeTransactionsRequest: Rules(
        each=_each("transactions", messages.DescribedTransaction, AclOperation.DESCRIBE, TRANSACTION),
        hide=seen_answers.described_transactions,
    ),
    messages.DescribeProducersRequest: Rules(
        each=_each("partitions", messages.DescribeProducersPartitionResponse, AclOperation.READ)
    ),
    messages.AbortTransactionRequest: Rules((_named(AclOperation.WRITE, TRANSACTION, "transactional_id"),)),
    messages.AbortHangingTransactionsRequest: Rules((_cluster(AclOperation.ALTER),)),
    messages.CommitOffsetsRequest: Rules(
        (
            Need(AclOperation.WRITE, TRANSACTION, _of_transaction, ", if one is named"),
            _named(AclOperation.READ, GROUP, "group"),
        ),
        _each("partitions", messages.CommitOffsetsPartitionResponse, AclOperation.READ),
    ),
    messages.FetchOffsetsRequest: Rules(
        (_named(AclOperation.DESCRIBE, GROUP, "group"),),
        _each("partitions", messages.FetchOffsetsPartitionResponse, AclOperation.DESCRIBE),
        seen_answers.offsets,
    ),
    messages.ListGroupsRequest: Rules(hide=seen_answers.listed_groups),
    messages.DescribeGroupsRequest: Rules(
        each=_each("groups", messages.DescribedGroup, AclOperation.DESCRIBE, GROUP),
        hide=seen_answers.described_groups,
    ),
    messages.DeleteGroupsRequest: Rules(each=_each("groups", messages.DeletedGroup, AclOperation.DELETE, GROUP)),
    messages.AlterShareGroupOffsetsRequest: Rules(
        (_named(AclOperation.READ, GROUP, "group"),),
        _each("partitions", messages.AlterShareGroupOffsetsPartitionResponse, AclOperation.READ),
    ),
    messages.DescribeQuotasRequest: Rules((_cluster(AclOperation.DESCRIBE_CONFIGS),)),
    messages.AlterQuotasRequest: Rules((_cluster(AclOperation.ALTER_CONFIGS),)),
    messages.SplitPointsRequest: Rules(each=_each("partitions", messages.SplitPointsPartitionResponse, AclOperation.DESCRIBE)),
    messages.StageRequest: Rules((_OF_APPLICATION,), _each("partitions", messages.StagePartitionResponse, AclOperation.WRITE)),
    messages.CommitStageRequest: Rules(
        (_OF_APPLICATION, Need(AclOperation.WRITE, TOPIC, _staged_topics, ", all that it has staged for"))
    ),
    messages.AbortStageRequest: Rules((_OF_APPLICATION,)),
    messages.LastCommitRequest: Rules((_named(AclOperation.DESCRIBE, TRANSACTION, "application", _APPLICATION),)),
    messages.LeaseSegmentsRequest: Rules(
        (_cluster(AclOperation.CLUSTER_ACTION), Need(AclOperation.READ, TOPIC, _leased_topics, ", all that are named"))
    ),
    messages.ListGapsRequest: Rules(
        each=_each("topics", messages.TopicGaps, AclOperation.DESCRIBE), hide=seen_answers.topics_with_gaps
    ),
    messages.AcceptGapsRequest: Rules(each=_each("partitions", messages.AcceptGapsPartitionResponse, AclOperation.ALTER)),
    messages.DescribeSegmentsRequest: Rules(
        each=_each("partitions", messages.DescribeSegmentsPartitionResponse, AclOperation.DESCRIBE)
    ),
    messages.ListConnectionsRequest: Rules((_cluster(AclOperation.DESCRIBE),)),
    messages.StatisticsRequest: Rules((_cluster(AclOperation.DESCRIBE),)),
}


class Judged(NamedTuple):
    """What the client may have of a request."""

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


def judge_steps(asker: Asker, broker: Broker, message: Any) -> Generator[None, None, Judged]:
    """What the client may have of a request. Raises AuthorizationError where that is nothing."""
    rules = RULES[type(message)]
    for need in rules.whole:
        need.check(asker, message)
    each = rules.each
    elements = None if each is None else getattr(message, each.key)
    if each is None or not elements:
        return Judged(message, hide=rules.hide)

    def refusal(element: Any) -> Body | None:
        return None if each.may(asker, broker, name_of(element)) else each.refusal(asker, element)

    kept, found = yield from divide_steps(elements, refusal)
    if not found:
        return Judged(message, hide=rules.hide)
    refused = [(place, entry) for place, _, entry in found]
    served = attrs.evolve(message, **{each.key: tuple(kept), **each.changes}) if kept else None
    return Judged(served, each.key, tuple(refused), rules.hide)


def judged(asker: Asker, broker: Broker, message: messages.RequestMessage) -> Judged:
    """The same, without pauses."""
    return finish(judge_steps(asker, broker, message))
