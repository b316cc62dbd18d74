"""Topics, offsets and groups without trio; the calls of `admin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....protocol.limits import DEFAULT_DESCRIBED_SEGMENTS, DEFAULT_LISTED
from ....protocol.native.messages import (
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
from ....protocol.types import Bytes, TimeRange, TopicPartition
from ..procedures import connections as connection_procedures
from ..procedures import gaps as gap_procedures
from ..procedures import groups as group_procedures
from ..procedures import quotas as quota_procedures
from ..procedures import segments as segment_procedures
from ..procedures import stages as stage_procedures
from ..procedures import topics as procedures
from ..procedures import transactions as transaction_procedures
from ..procedures.groups import CommittedOffset
from ..procedures.topics import Place
from .client import BlockingClient


class BlockingAdmin:
    """Calls on topics and groups, as Admin: every method raises the first error among the answers."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> CreatedTopic:
        """Create a topic; TopicAlreadyExistsError, InvalidTopicError, InvalidConfigError."""
        (created,) = self.create_topics([NewTopic(name, partitions, dict(config or {}))], validate_only=validate_only)
        return created

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics; those without an error are created even when this raises."""
        return self._client.run(procedures.create_topics(topics, validate_only))

    def delete_topics(self, *names: str) -> None:
        """Delete topics; those without an error are deleted even when this raises."""
        self._client.run(procedures.delete_topics(names))

    def list_topics(self) -> list[TopicMetadata]:
        """Every topic with its partitions."""
        return self._client.run(procedures.list_topics())

    def describe_topic(self, name: str) -> TopicMetadata:
        """One topic with its partitions; UnknownTopicOrPartitionError."""
        return self._client.run(procedures.describe_topic(name))

    def describe_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every configuration key of a topic."""
        return self._client.run(procedures.describe_config(name))

    def create_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all; keys then go to other partitions than before."""
        self._client.run(procedures.create_partitions(name, total))

    def alter_config(self, name: str, values: Mapping[str, str], *, delete: Iterable[str] = ()) -> None:
        """Give configuration keys of a topic values of its own, and `delete` others so that the server's hold; all or none."""
        self._client.run(procedures.alter_config(name, values, delete))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below an offset per partition, -1 for all there are; the log start offsets from then on."""
        return self._client.run(procedures.delete_records(before))

    def list_gaps(self, *topics: str) -> list[TopicGaps]:
        """The offsets that damage took out of these topics, or of all; partitions that have none are left out."""
        return self._client.run(gap_procedures.list_gaps(topics or None))

    def accept_gap(self, partition: TopicPartition, start_offset: int) -> int:
        """Let readers pass over the gap that starts there, whatever the topic's gap.policy is; answers its end, exclusive."""
        return self._client.run(gap_procedures.accept_gap(partition, start_offset))

    def describe_segments(
        self,
        *places: str | TopicPartition,
        from_offsets: Mapping[TopicPartition, int] | None = None,
        max_segments: int = DEFAULT_DESCRIBED_SEGMENTS,
    ) -> list[DescribeSegmentsPartitionResponse]:
        """Logs and segments of partitions, or of all of a topic; those that cannot be described have an error."""
        return self._client.run(segment_procedures.describe_segments(places, from_offsets, max_segments))

    def list_groups(self) -> list[str]:
        """Every group that has committed offsets, by name."""
        return self._client.run(group_procedures.list_groups())

    def describe_groups(self, *groups: str) -> list[DescribedGroup]:
        """State and members of groups, in order; those that cannot be described have an error."""
        return self._client.run(group_procedures.describe_groups(groups))

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, for these partitions or for all; those without are left out."""
        return self._client.run(group_procedures.fetch_offsets(group, partitions, require_stable=False))

    def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set a group's offsets, forwards or backwards."""
        self._client.run(group_procedures.commit_offsets(group, offsets))

    def alter_share_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group without members read from these offsets, forwards or backwards; -1 is where
        `share.auto.offset.reset` says. A group that is not there is made."""
        self._client.run(group_procedures.alter_share_group_offsets(group, offsets))

    def delete_groups(self, *groups: str) -> None:
        """Delete groups and their offsets; those without an error are deleted even when this raises."""
        self._client.run(group_procedures.delete_groups(groups))

    def list_transactions(
        self, *, states: Iterable[str] | None = None, open_for_ms: int | None = None, max_transactions: int = DEFAULT_LISTED
    ) -> ListTransactionsResponse:
        """Transactional ids, those with an open transaction first, and how many are left out."""
        return self._client.run(transaction_procedures.list_transactions(states, open_for_ms, max_transactions))

    def describe_transactions(self, *transactional_ids: str) -> list[DescribedTransaction]:
        """Transactional ids with the partitions of their transactions; those that cannot be described have an error."""
        return self._client.run(transaction_procedures.describe_transactions(transactional_ids))

    def describe_producers(
        self, *places: str | TopicPartition, open_only: bool = False, max_producers: int = DEFAULT_LISTED
    ) -> list[DescribeProducersPartitionResponse]:
        """What partitions, or all of a topic, remember of producers, and whether an open transaction hangs."""
        return self._client.run(
            transaction_procedures.describe_producers(places, open_only=open_only, max_producers=max_producers)
        )

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort what a transactional id has open, and fence its producer off."""
        self._client.run(transaction_procedures.abort_transaction(transactional_id))

    def abort_hanging_transaction(self, partition: TopicPartition, producer_id: int) -> int:
        """Abort what a producer has open on a partition and no transactional id has; answers where it began."""
        return self._client.run(transaction_procedures.abort_hanging_transaction(partition, producer_id))

    def describe_quotas(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Every user, client id or address that is limited, and to what; a name of None is the default."""
        return self._client.run(quota_procedures.describe_quotas())

    def alter_quotas(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits of `user`, `client-id`, both, or `ip`, and remove those that are None; in effect when this returns."""
        self._client.run(quota_procedures.alter_quotas(entity, values))

    def offsets(self, topic: str | TopicPartition, place: Place) -> dict[TopicPartition, int]:
        """The offset of a place in a partition, or in every partition of a topic."""
        partitions = self._client.run(procedures.partitions_of([topic]))
        return self._client.run(procedures.locate(partitions, place))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetsForTimesPartitionResponse]:
        """The first record at or after a time, per partition; offset and timestamp are -1 where there is none."""
        return self._client.run(procedures.lookup_times(timestamps))

    def explain(self, partition: TopicPartition, place: Place | TimeRange, *, with_segments: bool = False) -> dict[str, Any]:
        """How the server looks a place up, or finds the records of a range of times, as data; if wanted all segments, too."""
        return self._client.run(procedures.explain(partition, place, with_segments))

    def list_connections(self, max_connections: int = DEFAULT_LISTED) -> ListConnectionsResponse:
        """Who is connected to the server, over both protocols, and how many are left out."""
        return self._client.run(connection_procedures.list_connections(max_connections))

    def statistics(self) -> dict[str, Any]:
        """What the server has counted since its start, as data."""
        return self._client.run(procedures.statistics())

    def stage(
        self, application: str, version: int, task: str, records: Mapping[TopicPartition, Bytes]
    ) -> tuple[StagedPartition, ...]:
        """Keep record batches of a task aside, behind what it has staged before; what of it is to be named in the commit."""
        return self._client.run(stage_procedures.stage(application, version, task, records))

    def commit_stage(
        self, application: str, version: int, tasks: Mapping[str, Sequence[StagedPartition]]
    ) -> CommitStageResponse:
        """Append what the tasks have staged, exactly once: a version that is not above the last one changes nothing."""
        return self._client.run(stage_procedures.commit_stage(application, version, tasks))

    def abort_stage(self, application: str, version: int, tasks: Iterable[str] | None = None) -> None:
        """Throw away what these tasks, or all, have staged for a version; what is committed stays."""
        self._client.run(stage_procedures.abort_stage(application, version, tasks))

    def last_commit(self, application: str) -> int | None:
        """The version of staged records that an application has committed last."""
        return self._client.run(stage_procedures.last_commit(application))

    def split_points(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], target_bytes: int
    ) -> dict[TopicPartition, tuple[SplitPoint, ...]]:
        """Cut ranges of offsets, their ends exclusive, into pieces of about `target_bytes`."""
        return self._client.run(stage_procedures.split_points(ranges, target_bytes))

    def lease_segments(
        self, partitions: Iterable[TopicPartition], lease_ms: int, lease_id: str | None = None
    ) -> LeaseSegmentsResponse:
        """Names of segment files on the server's machine that stay for `lease_ms`; with `lease_id` it goes on, or ends (0)."""
        return self._client.run(stage_procedures.lease_segments(partitions, lease_ms, lease_id))
