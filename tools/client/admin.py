"""Topics, offsets and groups for people and programs: create, change, describe, delete, look up, explain. For trio programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...protocol.limits import DEFAULT_DESCRIBED_SEGMENTS, DEFAULT_LISTED
from ...protocol.native.messages import (
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
    SplitPoint,
    StagedPartition,
    TopicGaps,
    TopicMetadata,
)
from ...protocol.types import Bytes, TimeRange, TopicPartition
from .connection import Client
from .procedures import connections as connection_procedures
from .procedures import gaps as gap_procedures
from .procedures import groups as group_procedures
from .procedures import quotas as quota_procedures
from .procedures import segments as segment_procedures
from .procedures import stages as stage_procedures
from .procedures import topics as procedures
from .procedures import transactions as transaction_procedures
from .procedures.groups import CommittedOffset
from .procedures.topics import Place


class Admin:
    """Calls on topics and groups. Every method raises the first error among the answers; each is one or two calls."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> CreatedTopic:
        """Create a topic; TopicAlreadyExistsError, InvalidTopicError, InvalidConfigError."""
        topic = NewTopic(name, partitions, dict(config or {}))
        (created,) = await self.create_topics([topic], validate_only=validate_only)
        return created

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics; those without an error are created even when this raises."""
        return await self._client.run(procedures.create_topics(topics, validate_only))

    async def delete_topics(self, *names: str) -> None:
        """Delete topics; those without an error are deleted even when this raises."""
        await self._client.run(procedures.delete_topics(names))

    async def list_topics(self) -> list[TopicMetadata]:
        """Every topic with its partitions."""
        return await self._client.run(procedures.list_topics())

    async def describe_topic(self, name: str) -> TopicMetadata:
        """One topic with its partitions; UnknownTopicOrPartitionError."""
        return await self._client.run(procedures.describe_topic(name))

    async def describe_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every configuration key of a topic."""
        return await self._client.run(procedures.describe_config(name))

    async def create_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all; keys then go to other partitions than before."""
        await self._client.run(procedures.create_partitions(name, total))

    async def alter_config(self, name: str, values: Mapping[str, str], *, delete: Iterable[str] = ()) -> None:
        """Give configuration keys of a topic values of its own, and `delete` others so that the server's hold; all or none."""
        await self._client.run(procedures.alter_config(name, values, delete))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below an offset per partition, -1 for all there are; the log start offsets from then on."""
        return await self._client.run(procedures.delete_records(before))

    async def list_gaps(self, *topics: str) -> list[TopicGaps]:
        """The offsets that damage took out of these topics, or of all; partitions that have none are left out."""
        return await self._client.run(gap_procedures.list_gaps(topics or None))

    async def accept_gap(self, partition: TopicPartition, start_offset: int) -> int:
        """Let readers pass over the gap that starts there, whatever the topic's gap.policy is; answers its end, exclusive."""
        return await self._client.run(gap_procedures.accept_gap(partition, start_offset))

    async def describe_segments(
        self,
        *places: str | TopicPartition,
        from_offsets: Mapping[TopicPartition, int] | None = None,
        max_segments: int = DEFAULT_DESCRIBED_SEGMENTS,
    ) -> list[DescribeSegmentsPartitionResponse]:
        """Logs and segments of partitions, or of all of a topic; those that cannot be described have an error."""
        return await self._client.run(segment_procedures.describe_segments(places, from_offsets, max_segments))

    async def list_groups(self) -> list[str]:
        """Every group that has committed offsets, by name."""
        return await self._client.run(group_procedures.list_groups())

    async def describe_groups(self, *groups: str) -> list[DescribedGroup]:
        """State and members of groups, in order; those that cannot be described have an error."""
        return await self._client.run(group_procedures.describe_groups(groups))

    async def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, for these partitions or for all; those without are left out."""
        return await self._client.run(group_procedures.fetch_offsets(group, partitions, require_stable=False))

    async def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set a group's offsets, forwards or backwards."""
        await self._client.run(group_procedures.commit_offsets(group, offsets))

    async def alter_share_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group without members read from these offsets, forwards or backwards; -1 is where
        `share.auto.offset.reset` says. A group that is not there is made."""
        await self._client.run(group_procedures.alter_share_group_offsets(group, offsets))

    async def delete_groups(self, *groups: str) -> None:
        """Delete groups and their offsets; those without an error are deleted even when this raises."""
        await self._client.run(group_procedures.delete_groups(groups))

    async def list_transactions(
        self, *, states: Iterable[str] | None = None, open_for_ms: int | None = None, max_transactions: int = DEFAULT_LISTED
    ) -> ListTransactionsResponse:
        """Transactional ids, those with an open transaction first, and how many are left out."""
        return await self._client.run(transaction_procedures.list_transactions(states, open_for_ms, max_transactions))

    async def describe_transactions(self, *transactional_ids: str) -> list[DescribedTransaction]:
        """Transactional ids with the partitions of their transactions; those that cannot be described have an error."""
        return await self._client.run(transaction_procedures.describe_transactions(transactional_ids))

    async def describe_producers(
        self, *places: str | TopicPartition, open_only: bool = False, max_producers: int = DEFAULT_LISTED
    ) -> list[DescribeProducersPartitionResponse]:
        """What partitions, or all of a topic, remember of producers, and whether an open transaction hangs."""
        return await self._client.run(
            transaction_procedures.describe_producers(places, open_only=open_only, max_producers=max_producers)
        )

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort what a transactional id has open, and fence its producer off."""
        await self._client.run(transaction_procedures.abort_transaction(transactional_id))

    async def abort_hanging_transaction(self, partition: TopicPartition, producer_id: int) -> int:
        """Abort what a producer has open on a partition and no transactional id has; answers where it began."""
        return await self._client.run(transaction_procedures.abort_hanging_transaction(partition, producer_id))

    async def describe_quotas(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Every user, client id or address that is limited, and to what; a name of None is the default."""
        return await self._client.run(quota_procedures.describe_quotas())

    async def alter_quotas(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits of `user`, `client-id`, both, or `ip`, and remove those that are None; in effect when this returns."""
        await self._client.run(quota_procedures.alter_quotas(entity, values))

    async def check_may_change(self) -> None:
        """Raises CLUSTER_AUTHORIZATION_FAILED unless the user may alter configurations of the server."""
        await self._client.run(quota_procedures.check_may_change())

    async def offsets(self, topic: str | TopicPartition, place: Place) -> dict[TopicPartition, int]:
        """The offset of a place in a partition, or in every partition of a topic."""
        partitions = await self._client.run(procedures.partitions_of([topic]))
        return await self._client.run(procedures.locate(partitions, place))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetsForTimesPartitionResponse]:
        """The first record at or after a time, per partition; offset and timestamp are -1 where there is none."""
        return await self._client.run(procedures.lookup_times(timestamps))

    async def explain(
        self, partition: TopicPartition, place: Place | TimeRange, *, with_segments: bool = False
    ) -> dict[str, Any]:
        """How the server looks a place up, or finds the records of a range of times, as data; if wanted all segments, too."""
        return await self._client.run(procedures.explain(partition, place, with_segments))

    async def list_connections(self, max_connections: int = DEFAULT_LISTED) -> ListConnectionsResponse:
        """Who is connected to the server, over both protocols, and how many are left out."""
        return await self._client.run(connection_procedures.list_connections(max_connections))

    async def statistics(self) -> dict[str, Any]:
        """What the server has counted since its start, as data."""
        return await self._client.run(procedures.statistics())

    async def stage(
        self, application: str, version: int, task: str, records: Mapping[TopicPartition, Bytes]
    ) -> tuple[StagedPartition, ...]:
        """Keep record batches of a task aside, behind what it has staged before; what of it is to be named in the commit."""
        return await self._client.run(stage_procedures.stage(application, version, task, records))

    async def commit_stage(
        self, application: str, version: int, tasks: Mapping[str, Sequence[StagedPartition]]
    ) -> CommitStageResponse:
        """Append what the tasks have staged, exactly once: a version that is not above the last one changes nothing."""
        return await self._client.run(stage_procedures.commit_stage(application, version, tasks))

    async def abort_stage(self, application: str, version: int, tasks: Iterable[str] | None = None) -> None:
        """Throw away what these tasks, or all, have staged for a version; what is committed stays."""
        await self._client.run(stage_procedures.abort_stage(application, version, tasks))

    async def last_commit(self, application: str) -> int | None:
        """The version of staged records that an application has committed last."""
        return await self._client.run(stage_procedures.last_commit(application))

    async def split_points(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], target_bytes: int
    ) -> dict[TopicPartition, tuple[SplitPoint, ...]]:
        """Cut ranges of offsets, their ends exclusive, into pieces of about `target_bytes`."""
        return await self._client.run(stage_procedures.split_points(ranges, target_bytes))

    async def lease_segments(
        self, partitions: Iterable[TopicPartition], lease_ms: int, lease_id: str | None = None
    ) -> LeaseSegmentsResponse:
        """Names of segment files on the server's machine that stay for `lease_ms`; with `lease_id` it goes on, or ends (0)."""
        return await self._client.run(stage_procedures.lease_segments(partitions, lease_ms, lease_id))
