"""The one door for listeners and embedders: append, fetch, offsets for times, explain, topics, transactions, groups.

Values in, values out; no wire messages, no sockets. Per-partition errors are returned as values where several partitions are
asked at once, because the others still succeed.
"""

from ..actors.descriptions import DirectoryContents as DirectoryContents
from ..actors.descriptions import DirectoryDescription as DirectoryDescription
from ..actors.descriptions import PartitionDescription as PartitionDescription
from ..actors.descriptions import TopicDescription as TopicDescription
from ..actors.descriptions import TopicMetadata as TopicMetadata
from ..actors.durations import DURATION_BOUNDS_S as DURATION_BOUNDS_S
from ..actors.durations import Durations as Durations
from ..actors.groups import Commit as Commit
from ..actors.groups import GroupOffset as GroupOffset
from ..actors.log_opening import StartProgress as StartProgress
from ..actors.reader import LOOKUPS_PER_TURN as LOOKUPS_PER_TURN
from ..actors.reader import READER_TASKS as READER_TASKS
from ..actors.reader import FetchAnswer as FetchAnswer
from ..actors.reader import FetchPartition as FetchPartition
from ..actors.reader import ReaderView as ReaderView
from ..actors.security import Security as Security
from ..actors.segment_leases import Lease as Lease
from ..actors.stage_checks import StagedShare as StagedShare
from ..actors.stage_commits import Committed as Committed
from ..actors.stages import StageWrite as StageWrite
from ..actors.statistics import BrokerStatistics as BrokerStatistics
from ..actors.statistics import DirectorySpace as DirectorySpace
from ..actors.statistics import TopicFigures as TopicFigures
from ..groups.consumer_values import ConsumerGroupDescription as ConsumerGroupDescription
from ..groups.consumer_values import ConsumerHeartbeat as ConsumerHeartbeat
from ..groups.consumer_values import ConsumerHeartbeatAnswer as ConsumerHeartbeatAnswer
from ..groups.consumer_values import ConsumerMemberDescription as ConsumerMemberDescription
from ..groups.values import CommittingMember as CommittingMember
from ..groups.values import GroupDescription as GroupDescription
from ..groups.values import GroupListing as GroupListing
from ..groups.values import GroupState as GroupState
from ..groups.values import Heartbeat as Heartbeat
from ..groups.values import Join as Join
from ..groups.values import JoinAnswer as JoinAnswer
from ..groups.values import JoinedMember as JoinedMember
from ..groups.values import LeaveAnswer as LeaveAnswer
from ..groups.values import LeavingMember as LeavingMember
from ..groups.values import LeftMember as LeftMember
from ..groups.values import MemberDescription as MemberDescription
from ..groups.values import Sync as Sync
from ..groups.values import SyncAnswer as SyncAnswer
from ..security.acls import Acl as Acl
from ..security.acls import AclFilter as AclFilter
from ..security.acls import check_new_acl as check_new_acl
from ..storage.append import AppendResult as AppendResult
from ..storage.fetch import FetchedRecords as FetchedRecords
from ..storage.fetched_records import PlainRecords as PlainRecords
from ..storage.fetched_records import aborted_pairs as aborted_pairs
from ..storage.leased_files import LeasedPartition as LeasedPartition
from ..storage.paths import check_topic_name as check_topic_name
from ..storage.paths import is_internal as is_internal
from ..storage.plain_records import PlainRecord as PlainRecord
from ..storage.producer_entry import ProducerEntry as ProducerEntry
from ..storage.segment_view import TimestampAndOffset as TimestampAndOffset
from ..storage.stage_files import StagedBytes as StagedBytes
from .appends import Append as Append
from .broker import Broker as Broker
from .broker import open_broker_core as open_broker_core
