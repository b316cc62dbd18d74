"""What listeners and embedders call: `Broker` with its parts (`writer`, `reader`, `topics`, `groups`, `transactions`...).

Values in, values out; no wire messages, no sockets. Per-partition errors are returned as values where several partitions are
asked at once, because the others still succeed.
"""

from ..actors.coordinators.commit_batch import Commit as Commit
from ..actors.coordinators.committed_offsets import GroupOffset as GroupOffset
from ..actors.coordinators.managed.share_coordinator import ShareOffset as ShareOffset
from ..actors.disk.durations import DURATION_BOUNDS_S as DURATION_BOUNDS_S
from ..actors.disk.durations import Durations as Durations
from ..actors.disk.gathering import Gathering as Gathering
from ..actors.manager.descriptions import DirectoryContents as DirectoryContents
from ..actors.manager.descriptions import TopicDescription as TopicDescription
from ..actors.manager.descriptions import TopicMetadata as TopicMetadata
from ..actors.manager.log_opening import Report as Report
from ..actors.manager.log_opening import StartProgress as StartProgress
from ..actors.manager.security import Security as Security
from ..actors.stages.stage_checks import StagedShare as StagedShare
from ..actors.stages.stage_commits import Committed as Committed
from ..actors.stages.stages import StageWrite as StageWrite
from ..groups.consumer_values import ConsumerGroupDescription as ConsumerGroupDescription
from ..groups.consumer_values import ConsumerHeartbeat as ConsumerHeartbeat
from ..groups.consumer_values import ConsumerHeartbeatAnswer as ConsumerHeartbeatAnswer
from ..groups.consumer_values import ConsumerMemberDescription as ConsumerMemberDescription
from ..groups.share.values import ShareGroupDescription as ShareGroupDescription
from ..groups.share.values import ShareHeartbeat as ShareHeartbeat
from ..groups.share.values import ShareMemberDescription as ShareMemberDescription
from ..groups.values import CommittingMember as CommittingMember
from ..groups.values import GroupDescription as GroupDescription
from ..groups.values import GroupListing as GroupListing
from ..groups.values import GroupState as GroupState
from ..groups.values import Heartbeat as Heartbeat
from ..groups.values import Join as Join
from ..groups.values import JoinAnswer as JoinAnswer
from ..groups.values import LeavingMember as LeavingMember
from ..groups.values import Sync as Sync
from ..groups.values import SyncAnswer as SyncAnswer
from ..security.acls import Acl as Acl
from ..security.acls import AclFilter as AclFilter
from ..security.acls import check_new_acl as check_new_acl
from ..storage.disk.paths import check_topic_name as check_topic_name
from ..storage.disk.paths import is_internal as is_internal
from ..storage.log.append import AppendResult as AppendResult
from ..storage.log.plain_records import PlainRecord as PlainRecord
from ..storage.lookups.fetch import FetchedRecords as FetchedRecords
from ..storage.lookups.fetched_records import PlainRecords as PlainRecords
from ..storage.lookups.fetched_records import aborted_pairs as aborted_pairs
from ..storage.segments.segment_view import TimestampAndOffset as TimestampAndOffset
from ..storage.shared.leased_files import LeasedPartition as LeasedPartition
from ..storage.shared.stage_files import StagedBytes as StagedBytes
from .broker import Broker as Broker
from .broker import open_broker_core as open_broker_core
from .fetches import DEFAULT_VIEW as DEFAULT_VIEW
from .fetches import FetchAnswer as FetchAnswer
from .fetches import FetchPartition as FetchPartition
from .fetches import ReaderView as ReaderView
from .reader import LOOKUPS_PER_TURN as LOOKUPS_PER_TURN
from .reader import READER_TASKS as READER_TASKS
from .statistics import BrokerStatistics as BrokerStatistics
from .statistics import TopicFigures as TopicFigures
from .writer import PartitionAppend as PartitionAppend
