"""The interface for listeners and embedders: `Broker` with its parts (`writer`, `reader`, `topics`, `groups`,
`transactions`...).

Values in, values out; no wire messages, no sockets. A call about several partitions returns their errors as values, because
the other partitions still succeed.
"""

from ...protocol.types import AppendResult as AppendResult
from ...protocol.types import TimestampAndOffset as TimestampAndOffset
from ..access.acls import Acl as Acl
from ..access.acls import AclFilter as AclFilter
from ..access.acls import check_new_acl as check_new_acl
from ..access.quota_entities import CONSUMER_BYTE_RATE as CONSUMER_BYTE_RATE
from ..access.quota_entities import ENTITY_TYPES as ENTITY_TYPES
from ..access.quota_entities import IP as IP
from ..access.quota_entities import PRODUCER_BYTE_RATE as PRODUCER_BYTE_RATE
from ..access.quota_entities import REQUEST_PERCENTAGE as REQUEST_PERCENTAGE
from ..access.quota_entities import QuotaEntity as QuotaEntity
from ..access.quota_entities import check_quota as check_quota
from ..access.quota_entities import checked_entity as checked_entity
from ..access.quotas import ClientQuotas as ClientQuotas
from ..access.quotas import QuotaStatistics as QuotaStatistics
from ..groups.assigned.values import AssignedGroupDescription as AssignedGroupDescription
from ..groups.assigned.values import AssignedMemberDescription as AssignedMemberDescription
from ..groups.assigned.values import HeartbeatAnswer as HeartbeatAnswer
from ..groups.classic.values import GroupDescription as GroupDescription
from ..groups.classic.values import Heartbeat as Heartbeat
from ..groups.classic.values import Join as Join
from ..groups.classic.values import JoinAnswer as JoinAnswer
from ..groups.classic.values import LeavingMember as LeavingMember
from ..groups.classic.values import Sync as Sync
from ..groups.classic.values import SyncAnswer as SyncAnswer
from ..groups.consumer.values import ConsumerHeartbeat as ConsumerHeartbeat
from ..groups.coordinators.share import ShareOffset as ShareOffset
from ..groups.share.member import ShareHeartbeat as ShareHeartbeat
from ..groups.streams.tasks import TaskIds as TaskIds
from ..groups.streams.tasks import Tasks as Tasks
from ..groups.streams.tasks import by_subtopology as by_subtopology
from ..groups.streams.tasks import task_ids as task_ids
from ..groups.streams.values import Endpoint as Endpoint
from ..groups.streams.values import EndpointPartitions as EndpointPartitions
from ..groups.streams.values import InternalTopic as InternalTopic
from ..groups.streams.values import StreamsGroupDescription as StreamsGroupDescription
from ..groups.streams.values import StreamsHeartbeat as StreamsHeartbeat
from ..groups.streams.values import StreamsHeartbeatAnswer as StreamsHeartbeatAnswer
from ..groups.streams.values import StreamsMemberDescription as StreamsMemberDescription
from ..groups.streams.values import StreamsStatus as StreamsStatus
from ..groups.streams.values import StreamsStatusCode as StreamsStatusCode
from ..groups.streams.values import SubtopologyDescription as SubtopologyDescription
from ..groups.values import CommittingMember as CommittingMember
from ..groups.values import GroupListing as GroupListing
from ..groups.values import GroupState as GroupState
from ..logs.configs import ALL_BROKERS as ALL_BROKERS
from ..logs.configs import StoredOverrides as StoredOverrides
from ..logs.gap_passes import ListedGap as ListedGap
from ..logs.log_opening import Report as Report
from ..logs.log_opening import StartProgress as StartProgress
from ..logs.security import AuditLog as AuditLog
from ..logs.security import Security as Security
from ..logs.segment_leases import LeasedPartition as LeasedPartition
from ..logs.wear import DirectoryWear as DirectoryWear
from ..logs.wear import Rates as Rates
from ..logs.wear import WearStatistics as WearStatistics
from ..offsets.committed_offsets import Commit as Commit
from ..offsets.committed_offsets import GroupOffset as GroupOffset
from ..partitions.disk import DURATION_BOUNDS_S as DURATION_BOUNDS_S
from ..partitions.disk import Durations as Durations
from ..sharing.partitions import ShareInFlight as ShareInFlight
from ..sharing.partitions import ShareStatistics as ShareStatistics
from ..sharing.state.sessions import FINAL_SHARE_EPOCH as FINAL_SHARE_EPOCH
from ..sharing.state.sessions import INITIAL_SHARE_EPOCH as INITIAL_SHARE_EPOCH
from ..sharing.state.values import Acknowledgement as Acknowledgement
from ..sharing.state.values import AcknowledgeType as AcknowledgeType
from ..sharing.state.values import AcquireMode as AcquireMode
from ..sharing.state.values import OffsetReset as OffsetReset
from ..sharing.state.values import RecordState as RecordState
from ..sharing.state.values import ShareConfig as ShareConfig
from ..sharing.state.values import ShareKey as ShareKey
from ..sharing.views import SharedRecords as SharedRecords
from ..sharing.views import SharePartitionView as SharePartitionView
from ..stages.stage_commit_log import StagedShare as StagedShare
from ..stages.stage_commits import Committed as Committed
from ..stages.stage_files import StagedBytes as StagedBytes
from ..stages.stages import StageWrite as StageWrite
from ..storage.disk.diskops import Compute as Compute
from ..storage.disk.diskops import Procedure as Procedure
from ..storage.disk.paths import check_topic_name as check_topic_name
from ..storage.disk.paths import is_internal as is_internal
from ..storage.log.prepare import PlainRecord as PlainRecord
from ..storage.log.prepare import PreparedAppend as PreparedAppend
from ..storage.lookups.fetch import FetchedRecords as FetchedRecords
from ..storage.lookups.fetched_records import PlainRecords as PlainRecords
from ..storage.lookups.fetched_records import aborted_pairs as aborted_pairs
from ..storage.producers.producer_cursor import ProducerEntry as ProducerEntry
from ..telemetry.collected import Series as Series
from ..telemetry.instances import ACCEPTED_COMPRESSION as ACCEPTED_COMPRESSION
from ..telemetry.instances import Push as Push
from ..telemetry.otlp import Point as Point
from ..telemetry.otlp import point_steps as point_steps
from ..telemetry.otlp import unpack as unpack
from .broker import Broker as Broker
from .broker import open_broker_core as open_broker_core
from .fetches import DEFAULT_VIEW as DEFAULT_VIEW
from .fetches import FetchAnswer as FetchAnswer
from .fetches import FetchPartition as FetchPartition
from .fetches import ReaderView as ReaderView
from .fetches import note_gaps as note_gaps
from .logs import LogDescription as LogDescription
from .reader import LOOKUPS_PER_TURN as LOOKUPS_PER_TURN
from .reader import READER_TASKS as READER_TASKS
from .share_fetches import ShareFetch as ShareFetch
from .share_fetches import ShareFetched as ShareFetched
from .statistics import BrokerStatistics as BrokerStatistics
from .statistics import TopicFigures as TopicFigures
from .topics import DirectoryContents as DirectoryContents
from .topics import PartitionDescription as PartitionDescription
from .topics import TopicDescription as TopicDescription
from .topics import TopicMetadata as TopicMetadata
from .writer import PARTITIONS_AT_ONCE as PARTITIONS_AT_ONCE
from .writer import PARTITIONS_PER_TURN as PARTITIONS_PER_TURN
from .writer import PendingProduce as PendingProduce

ConsumerGroupDescription = AssignedGroupDescription
ShareGroupDescription = AssignedGroupDescription
ConsumerMemberDescription = AssignedMemberDescription
ShareMemberDescription = AssignedMemberDescription
ConsumerHeartbeatAnswer = HeartbeatAnswer
ShareHeartbeatAnswer = HeartbeatAnswer
