"""The errors of triolog: Kafka's codes and names for what is answered, and whose fault the rest is.

`TriologError` <- `ProtocolError` (local: we misuse a connection; remote: the peer broke the protocol)
               <- `RequestError` (an answer: has `code`, `retriable`)
               <- `PackageMissingError` (the installation lacks a package of the core)
`server.storage.errors` adds the errors of files. Source of the codes: Kafka's org.apache.kafka.common.protocol.Errors.
"""

from __future__ import annotations

import enum
import sys
from typing import ClassVar, Final, Self


class ErrorCode(enum.IntEnum):
    """Kafka's error codes."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


RETRIABLE_CODES: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Codes that Kafka's clients retry (Kafka: RetriableException)."""


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number where it has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class TriologError(Exception):
    """Base of every error that triolog raises on purpose."""


class PackageMissingError(TriologError, ImportError):
    """A package of the core is missing, or its compiled part: it was built for another Python or another machine."""

    def __init__(self, package: str) -> None:
        from sysconfig import get_platform

        version = ".".join(map(str, sys.version_info[:2]))
        super().__init__(
            f"triolog needs the package {package}, built for Python {version} on {get_platform()}. Where it has no wheel, "
            f"install a C compiler and Python's headers, and run: pip install --force-reinstall --no-binary {package} {package}"
        )


class ProtocolError(TriologError):
    """A connection was not used as its protocol demands."""


class LocalProtocolError(ProtocolError):
    """Our side misused the connection: a bug of the caller."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol. `code` is what the last error frame says before the connection is closed."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


MAX_MESSAGE_CHARS: Final = 1000
"""Of an answer's error message. It quotes what was asked for, up to 32,767 bytes, and does so for every partition."""


class RequestError(TriologError):
    """An answer that is an error: Kafka's code, and a message that states the facts and the next step."""

    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    record_errors: tuple[tuple[int, str], ...] = ()
    """Of an append: the index in the batch of each refused record, and why. Empty: the error is about the whole batch."""

    def __init_subclass__(cls, code: ErrorCode | None = None) -> None:
        """`code` is the default code of the class."""
        if code is not None:
            cls.default_code = code

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        if len(message) > MAX_MESSAGE_CHARS:
            message = f"{message[:MAX_MESSAGE_CHARS]}..."
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code

    @property
    def retriable(self) -> bool:
        """Return whether Kafka's clients would send the same request again."""
        return self.code in RETRIABLE_CODES

    def as_answer(self) -> Self:
        """The same error, without traceback and causes. Kept as a value, those would keep frames in memory until the
        garbage collector runs, with all the bytes that were being looked at."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class CorruptRecordError(RequestError, code=ErrorCode.CORRUPT_MESSAGE):
    """Bytes that cannot be a record batch: size, magic or CRC."""


class InvalidRecordError(RequestError, code=ErrorCode.INVALID_RECORD):
    """A batch with a right CRC whose content contradicts itself."""


class InvalidTimestampError(RequestError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record timestamp outside message.timestamp.before.max.ms / after.max.ms."""


class RecordTooLargeError(RequestError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A batch above max.message.bytes, or one that decompresses above the limit."""


class RecordBatchTooLargeError(RequestError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """An append above segment.bytes."""


class UnsupportedCompressionTypeError(RequestError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """Attribute bits 0-2 name no codec."""


class OffsetOutOfRangeError(RequestError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """A fetch below the log start offset or above the log end offset."""


class ExpectedOffsetError(OffsetOutOfRangeError):
    """An append that was to be made at another offset than the log's end. Nothing of it is stored."""

    def __init__(self, message: str, log_end_offset: int) -> None:
        super().__init__(message)
        self.log_end_offset = log_end_offset
        """Where the log ended."""


class UnknownTopicOrPartitionError(RequestError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """No such topic here, or it has fewer partitions."""


class TopicAlreadyExistsError(RequestError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A create for a name that is taken."""


class InvalidTopicError(RequestError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """A topic name that Kafka would refuse."""


class InvalidConfigError(RequestError, code=ErrorCode.INVALID_CONFIG):
    """An unknown configuration key, or a value outside its range."""


class InvalidRequestError(RequestError, code=ErrorCode.INVALID_REQUEST):
    """A request whose shape or values make no sense."""


class UnsupportedVersionError(RequestError, code=ErrorCode.UNSUPPORTED_VERSION):
    """An api, a version or a feature that does not exist here."""


class RequestTimedOutError(RequestError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The answer did not come within the request's timeout; whether it took effect is unknown."""


class OutOfOrderSequenceError(RequestError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A producer's batch that does not follow its last one on the partition."""


class InvalidProducerEpochError(RequestError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A producer whose epoch is older than the one that the log knows: a newer instance has taken over."""


class InvalidTxnStateError(RequestError, code=ErrorCode.INVALID_TXN_STATE):
    """A batch or a call that does not fit the state of the producer's transaction."""


class TransactionCoordinatorFencedError(RequestError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """A transaction marker of a coordinator that was replaced."""


class SaslAuthenticationError(RequestError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """A login that failed. The message goes to the client, so it does not tell what about a password was wrong."""


class AuthorizationError(RequestError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """Something that the principal of a connection may not do. The code says on which kind of resource."""
