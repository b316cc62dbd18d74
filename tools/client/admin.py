"""Topics, offsets and groups for people and programs: create, change, describe, delete, look up, explain.

The one place of these calls: `blocking.BlockingAdmin` runs the same functions over a client that waits in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...protocol.errors import RequestError
from ...protocol.former import former_keywords
from ...protocol.limits import DEFAULT_DESCRIBED_SEGMENTS, DEFAULT_LISTED
from ...protocol.native import messages as m
from ...protocol.native.messages import (
    AclEntry,
    CommitStageResponse,
    ConfigEntry,
    CreatedTopic,
    DescribedGroup,
    DescribedTransaction,
    DescribeProducersPartitionResponse,
    DescribeSegmentsPartitionResponse,
    LeaseSegmentsResponse,
    ListConnectionsResponse,
    ListTransactionsResponse,
    NewTopic,
    OffsetsForTimesPartitionResponse,
    RequestMessage,
    SplitPoint,
    StagedPartition,
    TopicGaps,
    TopicMetadata,
)
from ...protocol.types import Bytes, TimeRange, TopicPartition
from .procedures import groups, topics
from .procedures.groups import CommittedOffset
from .procedures.topics import AtOffset, AtTime, Place, Procedure, answer_to, checked

T = TypeVar("T")


class Caller(Protocol):
    """Makes the calls: a `Client`, or the blocking one."""

    async def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its result."""


class Admin:
    """Calls on topics and groups. Every method raises the first error among the answers; each is one or two calls."""

    def __init__(self, client: Caller) -> None:
        self._client = client

    async def _ask(self, request: RequestMessage) -> Any:
        return await self._client.run(answer_to(request))

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> CreatedTopic:
        """Create a topic; TopicAlreadyExistsError, InvalidTopicError, InvalidConfigError."""
        (created,) = await self.create_topics([NewTopic(name, partitions, dict(config or {}))], validate_only=validate_only)
        return created

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics; those without an error are created even when this raises."""
        return list(checked((await self._ask(m.CreateTopicsRequest(tuple(topics), validate_only))).topics))

    async def delete_topics(self, *names: str) -> None:
        """Delete topics; those without an error are deleted even when this raises."""
        checked((await self._ask(m.DeleteTopicsRequest(names))).topics)

    async def list_topics(self) -> list[TopicMetadata]:
        """Every topic with its partitions."""
        return list((await self._ask(m.MetadataRequest(None))).topics)

    async def describe_topic(self, name: str) -> TopicMetadata:
        """Return a topic with its partitions. Raises UnknownTopicOrPartitionError."""
        return await self._client.run(topics.describe_topic(name))

    async def describe_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every configuration key of a topic."""
        (topic,) = checked((await self._ask(m.DescribeConfigsRequest((name,)))).topics)
        return dict(topic.config)

    async def create_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all; keys then go to other partitions than before."""
        checked((await self._ask(m.CreatePartitionsRequest((m.NewPartitions(name, total),)))).topics)

    @former_keywords(values="changes", delete="deletes")
    async def alter_config(self, name: str, changes: Mapping[str, str], deletes: Iterable[str] = ()) -> None:
        """Give configuration keys of a topic values of its own, and let the keys in `deletes` follow the server's defaults
        again; all or none."""
        change = m.ConfigChange(name, dict(changes), tuple(deletes))
        checked((await self._ask(m.AlterConfigsRequest((change,)))).topics)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below an offset per partition, -1 for all there are; the log start offsets from then on."""
        asked = tuple(m.DeleteRecordsPartition(*partition, offset) for partition, offset in before.items())
        entries = checked((await self._ask(m.DeleteRecordsRequest(asked))).partitions)
        return {TopicPartition(each.topic, each.partition): each.log_start_offset for each in entries}

    async def list_gaps(self, *topics: str) -> list[TopicGaps]:
        """The offsets that damage took out of these topics, or of all; partitions that have none are left out."""
        return list(checked((await self._ask(m.ListGapsRequest(topics or None))).topics))

    async def accept_gap(self, partition: TopicPartition, start_offset: int) -> int:
        """Let readers pass over the gap that starts there, whatever the topic's gap.policy is; answers its end, exclusive."""
        asked = m.AcceptGapsPartition(*partition, start_offset)
        (entry,) = checked((await self._ask(m.AcceptGapsRequest((asked,)))).partitions)
        return int(entry.end_offset)

    async def describe_segments(
        self,
        *places: str | TopicPartition,
        from_offsets: Mapping[TopicPartition, int] | None = None,
        max_segments: int = DEFAULT_DESCRIBED_SEGMENTS,
    ) -> list[DescribeSegmentsPartitionResponse]:
        """Logs and segments of partitions, or of all of a topic; those that cannot be described have an error."""
        partitions = await self._client.run(topics.partitions_of(places))
        asked = tuple(m.DescribeSegmentsPartition(*each, (from_offsets or {}).get(each, 0)) for each in partitions)
        return list((await self._ask(m.DescribeSegmentsRequest(asked, max_segments))).partitions)

    async def list_groups(self) -> list[str]:
        """Every group that has committed offsets, by name."""
        return list((await self._ask(m.ListGroupsRequest())).groups)

    async def describe_groups(self, *groups: str) -> list[DescribedGroup]:
        """State and members of groups, in order; those that cannot be described have an error."""
        return list((await self._ask(m.DescribeGroupsRequest(groups))).groups)

    async def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, for these partitions or for all; partitions without one are left out."""
        return await self._client.run(groups.fetch_offsets(group, partitions, require_stable=False))

    async def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set a group's offsets, forwards or backwards."""
        await self._client.run(groups.commit_offsets(group, offsets))

    async def alter_share_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group without members read from these offsets, forwards or backwards; -1 is where
        `share.auto.offset.reset` says. A group that is not there is made."""
        if offsets:
            starts = tuple(m.SharedStart(*partition, offset) for partition, offset in offsets.items())
            checked((await self._ask(m.AlterShareGroupOffsetsRequest(group, starts))).partitions)

    async def delete_groups(self, *groups: str) -> None:
        """Delete groups and their offsets; those without an error are deleted even when this raises."""
        checked((await self._ask(m.DeleteGroupsRequest(groups))).groups)

    async def list_transactions(
        self, *, states: Iterable[str] | None = None, open_for_ms: int | None = None, max_transactions: int = DEFAULT_LISTED
    ) -> ListTransactionsResponse:
        """Transactional ids, those with an open transaction first, and how many are left out."""
        chosen = None if states is None else tuple(states)
        answer: ListTransactionsResponse = await self._ask(m.ListTransactionsRequest(chosen, open_for_ms, max_transactions))
        return answer

    async def describe_transactions(self, *transactional_ids: str) -> list[DescribedTransaction]:
        """Transactional ids with the partitions of their transactions; those that cannot be described have an error."""
        return list((await self._ask(m.DescribeTransactionsRequest(transactional_ids))).transactions)

    async def describe_producers(
        self, *places: str | TopicPartition, open_only: bool = False, max_producers: int = DEFAULT_LISTED
    ) -> list[DescribeProducersPartitionResponse]:
        """Return the producer state of partitions, or of all partitions of a topic, and whether an open transaction hangs."""
        partitions = await self._client.run(topics.partitions_of(places))
        asked = tuple(m.Partition(*partition) for partition in partitions)
        return list((await self._ask(m.DescribeProducersRequest(asked, open_only, max_producers))).partitions)

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort what a transactional id has open, and fence its producer off."""
        await self._ask(m.AbortTransactionRequest(transactional_id))

    async def abort_hanging_transaction(self, partition: TopicPartition, producer_id: int) -> int:
        """Abort what a producer has open on a partition and no transactional id has; answers where it began."""
        asked = m.HangingTransaction(*partition, producer_id)
        (entry,) = checked((await self._ask(m.AbortHangingTransactionsRequest((asked,)))).partitions)
        return int(entry.start_offset)

    async def describe_quotas(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Every user, client id or address that is limited, and to what; a name of None is the default."""
        return [
            (
                {part.type: part.name for part in quota.entity},
                {each.key: each.value for each in quota.values if each.value is not None},
            )
            for quota in (await self._ask(m.DescribeQuotasRequest())).quotas
        ]

    async def alter_quotas(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits of `user`, `client-id`, both, or `ip`, and remove those that are None; in effect when this returns."""
        parts = tuple(m.QuotaPart(kind, name) for kind, name in entity.items())
        quota = m.Quota(parts, tuple(m.QuotaValue(*each) for each in values.items()))
        checked((await self._ask(m.AlterQuotasRequest((quota,)))).entities)

    async def describe_users(self) -> dict[str, list[str]]:
        """The SASL mechanisms of each stored user."""
        found: dict[str, list[str]] = {}
        for each in (await self._ask(m.DescribeUsersRequest())).credentials:
            found.setdefault(each.user, []).append(each.mechanism)
        return found

    async def alter_users(self, user: str, salted: Mapping[str, tuple[int, bytes, bytes] | None]) -> None:
        """Store credentials of a user by mechanism: iterations, salt and salted password; None deletes one."""
        changes = (m.UserChange(user, mechanism, *(values or ())) for mechanism, values in salted.items())
        checked((await self._ask(m.AlterUsersRequest(tuple(changes)))).users)

    async def describe_acls(self, *filters: AclEntry) -> list[AclEntry]:
        """The ACLs that match one of the filters."""
        found = [acl for each in filters for acl in (await self._ask(m.DescribeAclsRequest(each))).acls]
        return list(dict.fromkeys(found))

    async def create_acls(self, *acls: AclEntry) -> None:
        """Create ACLs; those without an error are created even when this raises."""
        checked((await self._ask(m.CreateAclsRequest(acls))).acls)

    async def delete_acls(self, *filters: AclEntry) -> list[AclEntry]:
        """Delete the ACLs that match one of the filters, and return them."""
        return list((await self._ask(m.DeleteAclsRequest(filters))).acls)

    async def check_may_change(self) -> None:
        """Raises CLUSTER_AUTHORIZATION_FAILED unless the user may alter configurations of the server. A request without changes
        needs the right as any other."""
        checked((await self._ask(m.AlterQuotasRequest(()))).entities)

    async def offsets(self, topic: str | TopicPartition, place: Place) -> dict[TopicPartition, int]:
        """The offset of a place in a partition, or in every partition of a topic."""
        partitions = await self._client.run(topics.partitions_of([topic]))
        return await self._client.run(topics.locate(partitions, place))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetsForTimesPartitionResponse]:
        """The first record at or after a time, per partition; offset and timestamp are -1 where there is none."""
        return await self._client.run(topics.lookup_times(timestamps))

    async def explain(
        self, partition: TopicPartition, place: Place | TimeRange, *, with_segments: bool = False
    ) -> dict[str, Any]:
        """Return the server's lookup of a place, or its search for a time range, as data; optionally with all segments."""
        offset = place.offset if isinstance(place, AtOffset) else None
        timestamp = place.timestamp if isinstance(place, AtTime) else None
        ends = (place.start, m.end_of(place)) if isinstance(place, TimeRange) else (None, None)
        asked = m.ExplainPartition(*partition, offset, timestamp, *ends)
        (entry,) = checked((await self._ask(m.ExplainRequest((asked,), with_segments))).partitions)
        return dict(entry.walk or {})

    async def list_connections(self, max_connections: int = DEFAULT_LISTED) -> ListConnectionsResponse:
        """List the connections to the server over both protocols, and the number of connections left out."""
        answer: ListConnectionsResponse = await self._ask(m.ListConnectionsRequest(max_connections))
        return answer

    async def statistics(self) -> dict[str, Any]:
        """Return the server's statistics since its start, as data."""
        return dict((await self._ask(m.StatisticsRequest())).statistics)

    async def stage(
        self, application: str, version: int, task: str, records: Mapping[TopicPartition, Bytes]
    ) -> tuple[StagedPartition, ...]:
        """Keep record batches of a task aside, behind what it has staged before; what of it is to be named in the commit."""
        parts = tuple(m.StagePartition(*partition, batches) for partition, batches in records.items())
        entries = checked((await self._ask(m.StageRequest(application, version, task, parts))).partitions)
        return tuple(StagedPartition(each.topic, each.partition, each.size_bytes, each.crc) for each in entries)

    async def commit_stage(
        self, application: str, version: int, tasks: Mapping[str, Sequence[StagedPartition]]
    ) -> CommitStageResponse:
        """Append what the tasks have staged, exactly once: a version that is not above the last one changes nothing."""
        named = tuple(m.StagedTask(task, tuple(partitions)) for task, partitions in tasks.items())
        answer: CommitStageResponse = await self._ask(m.CommitStageRequest(application, version, named))
        return answer

    async def abort_stage(self, application: str, version: int, tasks: Iterable[str] | None = None) -> None:
        """Throw away what these tasks, or all, have staged for a version; what is committed stays."""
        await self._ask(m.AbortStageRequest(application, version, None if tasks is None else tuple(tasks)))

    async def last_commit(self, application: str) -> int | None:
        """The version of staged records that an application has committed last."""
        version = (await self._ask(m.LastCommitRequest(application))).version
        return None if version == m.NO_VERSION else int(version)

    async def split_points(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], target_bytes: int
    ) -> dict[TopicPartition, tuple[SplitPoint, ...]]:
        """Cut ranges of offsets, their ends exclusive, into pieces of about `target_bytes`."""
        asked = tuple(m.SplitPointsPartition(*each, start, end, target_bytes) for each, (start, end) in ranges.items())
        entries = checked((await self._ask(m.SplitPointsRequest(asked))).partitions)
        return {TopicPartition(each.topic, each.partition): each.points for each in entries}

    async def lease_segments(
        self, partitions: Iterable[TopicPartition], lease_ms: int, lease_id: str | None = None
    ) -> LeaseSegmentsResponse:
        """Names of segment files on the server's machine that stay for `lease_ms`; with `lease_id` it goes on, or ends (0).

        Where a partition has an error a new lease is ended at once, because nobody learns its name.
        """
        asked = tuple(m.Partition(*partition) for partition in partitions)
        answer: LeaseSegmentsResponse = await self._ask(m.LeaseSegmentsRequest(asked, lease_ms, lease_id))
        try:
            checked(answer.partitions)
        except RequestError:
            if lease_id is None:
                await self._ask(m.LeaseSegmentsRequest((), 0, answer.lease_id))
            raise
        return answer
