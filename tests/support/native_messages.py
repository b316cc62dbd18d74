"""hypothesis strategies for every message of the native protocol, and for the stream it travels in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from hypothesis import strategies as st
from triolog.protocol import limits
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.types import Record

INT16: Final = st.integers(0, limits.INT16_MAX)
INT32: Final = st.integers(0, limits.INT32_MAX)
UINT32: Final = st.integers(0, limits.UINT32_MAX)
INT64: Final = st.integers(0, limits.INT64_MAX)
INT64_OR_NONE_KNOWN: Final = st.integers(-1, limits.INT64_MAX)
TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=limits.MAX_TOPIC_NAME_CHARS)
BYTES_OR_NULL: Final = st.none() | st.binary(max_size=20)
HEADERS: Final = st.lists(st.tuples(TEXT, BYTES_OR_NULL), max_size=3).map(tuple)
BATCHES: Final = st.binary(max_size=40) | st.integers(1000, 70_000).map(bytes)
CONFIGS: Final = st.dictionaries(TEXT, TEXT, max_size=3)
PLAIN_RECORDS: Final = st.builds(messages.PlainRecord, st.none() | INT64, BYTES_OR_NULL, BYTES_OR_NULL, HEADERS)
RECORDS: Final = st.builds(Record, INT64, INT64_OR_NONE_KNOWN, BYTES_OR_NULL, BYTES_OR_NULL, HEADERS)


class ComparableError(RequestError):
    """An error that equals another with the same code and message, so that whole messages can be compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestError) and (self.code, self.message) == (other.code, other.message)

    __hash__ = RequestError.__hash__


ERRORS: Final = st.none() | st.builds(ComparableError, TEXT, st.sampled_from(ErrorCode))


def tuples_of(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


TRANSACTIONAL_IDS: Final = st.none() | NAMES
TRANSACTION_PRODUCERS: Final = st.builds(messages.TransactionProducer, NAMES, INT64, INT16)
CHANGED_TOPICS: Final = tuples_of(st.builds(messages.ChangedTopic, NAMES, ERRORS))

ASSIGNMENTS: Final = tuples_of(st.builds(messages.OffsetsPartition, NAMES, INT32))
MEMBERS: Final = tuples_of(st.builds(messages.GroupMember, TEXT, st.none() | TEXT, TEXT, TEXT, ASSIGNMENTS))
QUOTA_ENTITIES: Final = tuples_of(st.builds(messages.QuotaPart, NAMES, st.none() | TEXT))
QUOTAS: Final = tuples_of(
    st.builds(
        messages.Quota,
        QUOTA_ENTITIES,
        tuples_of(st.builds(messages.QuotaValue, NAMES, st.none() | st.floats(allow_nan=False))),
    )
)
GAPS: Final = tuples_of(st.builds(messages.Gap, INT64, INT64, st.none() | TEXT, *[INT64_OR_NONE_KNOWN] * 3))
SEGMENTS: Final = tuples_of(
    st.builds(
        messages.DescribedSegment,
        *[INT64] * 3,
        *[INT64_OR_NONE_KNOWN] * 2,
        st.booleans(),
        st.booleans(),
        *[INT32] * 3,
    )
)
PARTITION_GAPS: Final = tuples_of(st.builds(messages.PartitionGaps, INT32, ERRORS, GAPS))
SHARED: Final = tuples_of(
    st.builds(
        messages.SharedPartition,
        NAMES,
        INT32,
        *[INT64_OR_NONE_KNOWN] * 3,
        INT64,
        tuples_of(st.builds(messages.Deliveries, INT32, INT64)),
    )
)
DESCRIBED_GROUPS: Final = st.builds(messages.DescribedGroup, NAMES, ERRORS, TEXT, TEXT, TEXT, TEXT, MEMBERS, SHARED)
MSGPACK_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | TEXT | st.binary(max_size=20),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(TEXT, values, max_size=4),
    max_leaves=12,
)


REQUESTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "hello": st.builds(messages.HelloRequest, st.text(min_size=1, max_size=255), st.none() | TEXT),
    "authenticate": st.builds(messages.AuthenticateRequest, NAMES.map(lambda name: name[:64]), st.binary(max_size=50)),
    "produce": st.builds(
        messages.ProduceRequest,
        tuples_of(st.builds(messages.ProducePartition, NAMES, INT32, BATCHES | tuples_of(PLAIN_RECORDS))),
        st.sampled_from([0, 1, -1]),
        INT32,
        TRANSACTIONAL_IDS,
    ),
    "fetch": st.builds(
        messages.FetchRequest,
        tuples_of(st.builds(messages.FetchPartition, NAMES, INT32, INT64, INT32)),
        INT32,
        INT32,
        INT32,
        st.sampled_from(messages.Isolation),
        st.sampled_from(messages.Format),
        st.none() | st.sampled_from(messages.Gaps),
    ),
    "offsets_for_times": st.builds(
        messages.OffsetsForTimesRequest,
        tuples_of(st.builds(messages.OffsetsForTimesPartition, NAMES, INT32, st.integers(-3, limits.INT64_MAX))),
        st.sampled_from(messages.Isolation),
    ),
    "explain": st.builds(
        messages.ExplainRequest,
        tuples_of(
            st.builds(messages.ExplainPartition, NAMES, INT32, offset=INT64)
            | st.builds(messages.ExplainPartition, NAMES, INT32, timestamp=st.integers(-3, limits.INT64_MAX))
        ),
        st.booleans(),
    ),
    "metadata": st.builds(messages.MetadataRequest, st.none() | tuples_of(NAMES)),
    "create_topics": st.builds(
        messages.CreateTopicsRequest,
        tuples_of(st.builds(messages.NewTopic, NAMES, INT32, CONFIGS)),
        st.booleans(),
    ),
    "delete_topics": st.builds(messages.DeleteTopicsRequest, tuples_of(NAMES)),
    "describe_configs": st.builds(messages.DescribeConfigsRequest, tuples_of(NAMES)),
    "create_partitions": st.builds(
        messages.CreatePartitionsRequest, tuples_of(st.builds(messages.NewPartitions, NAMES, INT32))
    ),
    "alter_configs": st.builds(
        messages.AlterConfigsRequest, tuples_of(st.builds(messages.ConfigChange, NAMES, CONFIGS, tuples_of(NAMES)))
    ),
    "delete_records": st.builds(
        messages.DeleteRecordsRequest,
        tuples_of(st.builds(messages.DeleteRecordsPartition, NAMES, INT32, INT64_OR_NONE_KNOWN)),
    ),
    "init_producer": st.builds(messages.InitProducerRequest, TRANSACTIONAL_IDS, INT32),
    "end_transaction": st.builds(messages.EndTransactionRequest, TRANSACTION_PRODUCERS, st.booleans()),
    "list_transactions": st.builds(
        messages.ListTransactionsRequest, st.none() | tuples_of(NAMES), st.none() | INT64, st.integers(0, limits.MAX_LISTED)
    ),
    "describe_transactions": st.builds(messages.DescribeTransactionsRequest, tuples_of(NAMES)),
    "describe_producers": st.builds(
        messages.DescribeProducersRequest,
        tuples_of(st.builds(messages.DescribeProducersPartition, NAMES, INT32)),
        st.booleans(),
        st.integers(0, limits.MAX_LISTED),
    ),
    "abort_transaction": st.builds(messages.AbortTransactionRequest, NAMES),
    "abort_hanging_transactions": st.builds(
        messages.AbortHangingTransactionsRequest, tuples_of(st.builds(messages.HangingTransaction, NAMES, INT32, INT64))
    ),
    "commit_offsets": st.builds(
        messages.CommitOffsetsRequest,
        NAMES,
        tuples_of(st.builds(messages.CommittedPartition, NAMES, INT32, INT64, st.none() | TEXT)),
        st.none() | TRANSACTION_PRODUCERS,
    ),
    "fetch_offsets": st.builds(
        messages.FetchOffsetsRequest,
        NAMES,
        st.none() | tuples_of(st.builds(messages.OffsetsPartition, NAMES, INT32)),
        st.booleans(),
    ),
    "list_groups": st.builds(messages.ListGroupsRequest),
    "delete_groups": st.builds(messages.DeleteGroupsRequest, tuples_of(NAMES)),
    "alter_share_group_offsets": st.builds(
        messages.AlterShareGroupOffsetsRequest,
        NAMES,
        tuples_of(st.builds(messages.SharedStart, NAMES, INT32, INT64_OR_NONE_KNOWN)),
    ),
    "describe_quotas": st.builds(messages.DescribeQuotasRequest),
    "alter_quotas": st.builds(messages.AlterQuotasRequest, QUOTAS),
    "list_gaps": st.builds(messages.ListGapsRequest, st.none() | tuples_of(NAMES)),
    "accept_gaps": st.builds(
        messages.AcceptGapsRequest, tuples_of(st.builds(messages.AcceptGapsPartition, NAMES, INT32, INT64))
    ),
    "describe_segments": st.builds(
        messages.DescribeSegmentsRequest,
        tuples_of(st.builds(messages.DescribeSegmentsPartition, NAMES, INT32, INT64)),
        st.integers(0, limits.MAX_DESCRIBED_SEGMENTS),
    ),
    "split_points": st.builds(
        messages.SplitPointsRequest,
        tuples_of(st.builds(messages.SplitPointsPartition, NAMES, INT32, INT64, INT64, st.integers(1, limits.INT64_MAX))),
    ),
    "stage": st.builds(
        messages.StageRequest, NAMES, INT64, NAMES, tuples_of(st.builds(messages.StagePartition, NAMES, INT32, BATCHES))
    ),
    "commit_stage": st.builds(
        messages.CommitStageRequest,
        NAMES,
        INT64,
        tuples_of(
            st.builds(
                messages.StagedTask,
                NAMES,
                tuples_of(st.builds(messages.StagedPartition, NAMES, INT32, st.integers(1, limits.INT64_MAX), UINT32)),
            )
        ),
    ),
    "abort_stage": st.builds(messages.AbortStageRequest, NAMES, INT64, st.none() | tuples_of(NAMES)),
    "last_commit": st.builds(messages.LastCommitRequest, NAMES),
    "describe_groups": st.builds(messages.DescribeGroupsRequest, tuples_of(st.text(min_size=1, max_size=255))),
    "list_connections": st.builds(messages.ListConnectionsRequest, st.integers(0, limits.MAX_LISTED)),
    "statistics": st.builds(messages.StatisticsRequest),
    "lease_segments": st.builds(
        messages.LeaseSegmentsRequest,
        tuples_of(st.builds(messages.LeasePartition, NAMES, INT32)),
        INT64,
        st.none() | NAMES.map(lambda name: name[:64]),
    ),
}

RESPONSES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "hello": st.builds(
        messages.HelloResponse,
        NAMES,
        NAMES,
        INT32,
        NAMES,
        st.dictionaries(TEXT, st.tuples(INT32, INT32), max_size=3),
        st.integers(1, 2**32 - 1),
        st.integers(1, limits.INT32_MAX),
        tuples_of(NAMES.map(lambda name: name[:64])),
    ),
    "authenticate": st.builds(messages.AuthenticateResponse, st.binary(max_size=50), st.booleans(), INT64),
    "produce": st.builds(
        messages.ProduceResponse,
        tuples_of(
            st.builds(
                messages.ProducePartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
            )
        ),
    ),
    "fetch": st.builds(
        messages.FetchResponse,
        tuples_of(
            st.builds(
                messages.FetchPartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
                tuples_of(st.tuples(INT64, INT64)),
                BATCHES | tuples_of(RECORDS),
                INT64_OR_NONE_KNOWN,
            )
        ),
    ),
    "offsets_for_times": st.builds(
        messages.OffsetsForTimesResponse,
        tuples_of(
            st.builds(
                messages.OffsetsForTimesPartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
                st.integers(-1, limits.INT32_MAX),
            )
        ),
    ),
    "explain": st.builds(
        messages.ExplainResponse,
        tuples_of(
            st.builds(
                messages.ExplainPartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                st.none() | st.dictionaries(TEXT, MSGPACK_VALUES, max_size=3),
            )
        ),
    ),
    "metadata": st.builds(
        messages.MetadataResponse,
        tuples_of(
            st.builds(
                messages.TopicMetadata,
                NAMES,
                ERRORS,
                st.none() | TEXT,
                CONFIGS,
                tuples_of(
                    st.builds(
                        messages.PartitionMetadata,
                        INT32,
                        ERRORS,
                        INT64_OR_NONE_KNOWN,
                        INT64_OR_NONE_KNOWN,
                        INT64,
                        INT32,
                    )
                ),
            )
        ),
    ),
    "create_topics": st.builds(
        messages.CreateTopicsResponse,
        tuples_of(st.builds(messages.CreatedTopic, NAMES, ERRORS, st.none() | TEXT)),
    ),
    "delete_topics": st.builds(messages.DeleteTopicsResponse, tuples_of(st.builds(messages.DeletedTopic, NAMES, ERRORS))),
    "describe_configs": st.builds(
        messages.DescribeConfigsResponse,
        tuples_of(
            st.builds(
                messages.TopicConfig,
                NAMES,
                ERRORS,
                st.dictionaries(TEXT, st.builds(messages.ConfigEntry, TEXT, NAMES.map(lambda name: name[:64])), max_size=3),
            )
        ),
    ),
    "create_partitions": st.builds(messages.CreatePartitionsResponse, CHANGED_TOPICS),
    "alter_configs": st.builds(messages.AlterConfigsResponse, CHANGED_TOPICS),
    "delete_records": st.builds(
        messages.DeleteRecordsResponse,
        tuples_of(st.builds(messages.DeleteRecordsPartitionResponse, NAMES, INT32, ERRORS, INT64_OR_NONE_KNOWN)),
    ),
    "init_producer": st.builds(messages.InitProducerResponse, INT64, INT16),
    "end_transaction": st.builds(messages.EndTransactionResponse),
    "list_transactions": st.builds(
        messages.ListTransactionsResponse,
        tuples_of(
            st.builds(
                messages.ListedTransaction, NAMES, TEXT, INT64_OR_NONE_KNOWN, INT16, INT32, *[INT64_OR_NONE_KNOWN] * 3, INT32
            )
        ),
        INT32,
    ),
    "describe_transactions": st.builds(
        messages.DescribeTransactionsResponse,
        tuples_of(
            st.builds(
                messages.DescribedTransaction,
                NAMES,
                ERRORS,
                TEXT,
                INT64_OR_NONE_KNOWN,
                INT16,
                INT32,
                *[INT64_OR_NONE_KNOWN] * 3,
                tuples_of(st.builds(messages.TransactionPartition, NAMES, INT32)),
            )
        ),
    ),
    "describe_producers": st.builds(
        messages.DescribeProducersResponse,
        tuples_of(
            st.builds(
                messages.DescribeProducersPartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                tuples_of(
                    st.builds(
                        messages.DescribedProducer,
                        INT64,
                        INT16,
                        INT32,
                        INT64_OR_NONE_KNOWN,
                        INT32,
                        INT64_OR_NONE_KNOWN,
                        st.booleans(),
                    )
                ),
                INT32,
            )
        ),
    ),
    "abort_transaction": st.builds(messages.AbortTransactionResponse),
    "abort_hanging_transactions": st.builds(
        messages.AbortHangingTransactionsResponse,
        tuples_of(st.builds(messages.AbortedHangingTransaction, NAMES, INT32, ERRORS, INT64_OR_NONE_KNOWN)),
    ),
    "commit_offsets": st.builds(
        messages.CommitOffsetsResponse, tuples_of(st.builds(messages.CommitOffsetsPartitionResponse, NAMES, INT32, ERRORS))
    ),
    "fetch_offsets": st.builds(
        messages.FetchOffsetsResponse,
        tuples_of(
            st.builds(messages.FetchOffsetsPartitionResponse, NAMES, INT32, ERRORS, INT64_OR_NONE_KNOWN, st.none() | TEXT)
        ),
    ),
    "list_groups": st.builds(messages.ListGroupsResponse, tuples_of(NAMES)),
    "delete_groups": st.builds(messages.DeleteGroupsResponse, tuples_of(st.builds(messages.DeletedGroup, NAMES, ERRORS))),
    "alter_share_group_offsets": st.builds(
        messages.AlterShareGroupOffsetsResponse,
        tuples_of(st.builds(messages.AlterShareGroupOffsetsPartitionResponse, NAMES, INT32, ERRORS)),
    ),
    "describe_quotas": st.builds(messages.DescribeQuotasResponse, QUOTAS),
    "alter_quotas": st.builds(
        messages.AlterQuotasResponse, tuples_of(st.builds(messages.AlteredQuota, QUOTA_ENTITIES, ERRORS))
    ),
    "list_gaps": st.builds(messages.ListGapsResponse, tuples_of(st.builds(messages.TopicGaps, NAMES, ERRORS, PARTITION_GAPS))),
    "accept_gaps": st.builds(
        messages.AcceptGapsResponse,
        tuples_of(st.builds(messages.AcceptGapsPartitionResponse, NAMES, INT32, ERRORS, INT64_OR_NONE_KNOWN)),
    ),
    "describe_segments": st.builds(
        messages.DescribeSegmentsResponse,
        tuples_of(
            st.builds(
                messages.DescribeSegmentsPartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                *[INT64_OR_NONE_KNOWN] * 7,
                INT32,
                st.none() | TEXT,
                SEGMENTS,
                INT32,
                GAPS,
                INT32,
            )
        ),
    ),
    "split_points": st.builds(
        messages.SplitPointsResponse,
        tuples_of(
            st.builds(
                messages.SplitPointsPartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                tuples_of(st.builds(messages.SplitPoint, INT64, INT64)),
            )
        ),
    ),
    "stage": st.builds(
        messages.StageResponse,
        tuples_of(st.builds(messages.StagePartitionResponse, NAMES, INT32, ERRORS, INT64, UINT32)),
    ),
    "commit_stage": st.builds(
        messages.CommitStageResponse,
        st.booleans(),
        tuples_of(
            st.builds(messages.StageCommittedPartition, NAMES, INT32, INT64_OR_NONE_KNOWN, INT64_OR_NONE_KNOWN),
        ),
    ),
    "abort_stage": st.builds(messages.AbortStageResponse),
    "last_commit": st.builds(messages.LastCommitResponse, INT64_OR_NONE_KNOWN),
    "describe_groups": st.builds(messages.DescribeGroupsResponse, tuples_of(DESCRIBED_GROUPS)),
    "list_connections": st.builds(
        messages.ListConnectionsResponse,
        tuples_of(
            st.builds(
                messages.ListedConnection,
                *[TEXT] * 7,
                INT64_OR_NONE_KNOWN,
                INT64,
                INT32,
                *[INT64_OR_NONE_KNOWN] * 2,
                st.booleans(),
                st.booleans(),
            )
        ),
        INT32,
    ),
    "statistics": st.builds(messages.StatisticsResponse, st.dictionaries(TEXT, MSGPACK_VALUES, max_size=4)),
    "lease_segments": st.builds(
        messages.LeaseSegmentsResponse,
        NAMES.map(lambda name: name[:64]),
        tuples_of(
            st.builds(
                messages.LeasePartitionResponse,
                NAMES,
                INT32,
                ERRORS,
                st.none() | TEXT,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
                INT64_OR_NONE_KNOWN,
                tuples_of(st.builds(messages.LeasedSegment, INT64, NAMES, INT64)),
            )
        ),
    ),
}


@st.composite
def split(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream in pieces, some of them empty-handed: cut anywhere."""
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    bounds = [0, *cuts, len(stream)]
    return [stream[start:stop] for start, stop in pairwise(bounds) if stop > start]
