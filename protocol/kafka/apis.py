"""Every API of Kafka's protocol that is served: key, versions, messages.

| tier | meaning |
|---|---|
| A | produce, consume, groups, topics: what every client needs |
| B | transactions, authentication, consumer groups (KIP-848), share groups (KIP-932) |
| C | views and administration |

An API is added by its messages, whose fields say what they stand for (`Entity`); a row of `ApiKey`; a function with its name
in a module of `server.listeners.kafka`; and a row of `RULES` in `guard` there.

Versions are those that are advertised. The lowest are Kafka 4's (KIP-896) or lower where
clients of today still send them. Source: Kafka's message schemas, `ApiKeys`.

What the values in Kafka's messages stand for. From where a message has them it is derived what a request is about, and which
lists of it its answer repeats. The first four are entity types of Kafka's schema files, the others are our own.
"""

from __future__ import annotations

import enum
import functools
import importlib
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Self, TypeVar

import attrs

from ..limits import INT16_MAX
from ..schema.fields import INT8, INT32, INT64, STRING, UUID, Entity, Field, Versions, all_fields, cached
from ..schema.reader import Reader, make_reader
from ..schema.writer import Writer, make_writer

T = TypeVar("T")

NEVER: Final = INT16_MAX
"""In place of the first version with compact lengths and tagged fields (KIP-482)."""
_ANSWER: Final = struct.Struct(">ii")
_TAGGED_ANSWER: Final = struct.Struct(">iix")


class ServedBy(enum.Enum):
    """The nodes of a cluster that serve an API; others return NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR."""

    ANY = enum.auto()
    LEADER = enum.auto()
    """Of each partition that is named."""
    GROUP = enum.auto()
    """The coordinator of the group."""
    TRANSACTION = enum.auto()
    """The coordinator of the transactional id."""


class ApiKey(enum.IntEnum):
    """Kafka's numbers of its APIs, as far as they are served here, and all that is declared of each: its number, the module of
    its messages, the lowest and highest version, the first flexible one, who serves it, and the lowest version that is read
    where lower ones are advertised."""

    row: tuple[Any, ...]

    def __new__(cls, number: int, *row: Any) -> Self:
        key = int.__new__(cls, number)
        key._value_, key.row = number, row
        return key

    __hash__ = int.__hash__  # an enum's is a function of Python: two calls for each look into a table

    # Tier A. Produce is advertised from version 0 on: librdkafka looks there whether a broker knows gzip, snappy and lz4.
    PRODUCE = 0, "records", 0, 13, 9, ServedBy.LEADER, 3
    FETCH = 1, "records", 4, 18, 12, ServedBy.LEADER
    LIST_OFFSETS = 2, "records", 0, 11, 6, ServedBy.LEADER
    METADATA = 3, "topics", 0, 13, 9
    API_VERSIONS = 18, "cluster", 0, 5, 3
    FIND_COORDINATOR = 10, "groups", 0, 6, 3
    INIT_PRODUCER_ID = 22, "transactions", 0, 5, 2, ServedBy.TRANSACTION
    OFFSET_FOR_LEADER_EPOCH = 23, "records", 2, 4, 4, ServedBy.LEADER
    OFFSET_COMMIT = 8, "offsets", 2, 10, 8, ServedBy.GROUP
    OFFSET_FETCH = 9, "offsets", 1, 10, 6, ServedBy.GROUP
    JOIN_GROUP = 11, "groups", 0, 9, 6, ServedBy.GROUP
    HEARTBEAT = 12, "groups", 0, 4, 4, ServedBy.GROUP
    LEAVE_GROUP = 13, "groups", 0, 5, 4, ServedBy.GROUP
    SYNC_GROUP = 14, "groups", 0, 5, 4, ServedBy.GROUP
    DESCRIBE_GROUPS = 15, "groups", 0, 6, 5, ServedBy.GROUP
    LIST_GROUPS = 16, "groups", 0, 5, 3
    DELETE_GROUPS = 42, "groups", 0, 3, 2, ServedBy.GROUP
    OFFSET_DELETE = 47, "offsets", 0, 0, NEVER, ServedBy.GROUP
    CREATE_TOPICS = 19, "topics", 2, 7, 5
    DELETE_TOPICS = 20, "topics", 1, 6, 4
    DELETE_RECORDS = 21, "topics", 0, 2, 2, ServedBy.LEADER
    CREATE_PARTITIONS = 37, "topics", 0, 3, 2
    DESCRIBE_CONFIGS = 32, "configs", 1, 4, 4
    ALTER_CONFIGS = 33, "configs", 0, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, "configs", 0, 1, 1
    DESCRIBE_CLUSTER = 60, "cluster", 0, 2, 0
    # Tier B.
    ADD_PARTITIONS_TO_TXN = 24, "transactions", 0, 3, 3, ServedBy.TRANSACTION
    ADD_OFFSETS_TO_TXN = 25, "transactions", 0, 4, 3, ServedBy.TRANSACTION
    END_TXN = 26, "transactions", 0, 5, 3, ServedBy.TRANSACTION
    TXN_OFFSET_COMMIT = 28, "transactions", 0, 6, 3, ServedBy.GROUP
    WRITE_TXN_MARKERS = 27, "transactions", 1, 2, 1
    DESCRIBE_PRODUCERS = 61, "transactions", 0, 0, 0, ServedBy.LEADER
    DESCRIBE_TRANSACTIONS = 65, "transactions", 0, 0, 0
    LIST_TRANSACTIONS = 66, "transactions", 0, 2, 0
    SASL_HANDSHAKE = 17, "security", 0, 1, NEVER
    SASL_AUTHENTICATE = 36, "security", 0, 2, 2
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "security", 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, "security", 0, 0, 0
    CONSUMER_GROUP_HEARTBEAT = 68, "groups", 0, 1, 0, ServedBy.GROUP
    CONSUMER_GROUP_DESCRIBE = 69, "groups", 0, 1, 0, ServedBy.GROUP
    SHARE_GROUP_HEARTBEAT = 76, "share_groups", 1, 1, 0, ServedBy.GROUP
    SHARE_GROUP_DESCRIBE = 77, "share_groups", 1, 1, 0, ServedBy.GROUP
    SHARE_FETCH = 78, "share_groups", 1, 2, 0, ServedBy.LEADER
    SHARE_ACKNOWLEDGE = 79, "share_groups", 1, 2, 0, ServedBy.LEADER
    STREAMS_GROUP_HEARTBEAT = 88, "streams_groups", 0, 0, 0, ServedBy.GROUP
    STREAMS_GROUP_DESCRIBE = 89, "streams_groups", 0, 0, 0, ServedBy.GROUP
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "share_groups", 0, 1, 0, ServedBy.GROUP
    ALTER_SHARE_GROUP_OFFSETS = 91, "share_groups", 0, 0, 0, ServedBy.GROUP
    DELETE_SHARE_GROUP_OFFSETS = 92, "share_groups", 0, 0, 0, ServedBy.GROUP
    # Tier C.
    DESCRIBE_TOPIC_PARTITIONS = 75, "topics", 0, 0, 0
    DESCRIBE_LOG_DIRS = 35, "cluster", 1, 5, 2
    ALTER_REPLICA_LOG_DIRS = 34, "cluster", 1, 2, 2
    ELECT_LEADERS = 43, "cluster", 0, 2, 2
    ALTER_PARTITION_REASSIGNMENTS = 45, "cluster", 0, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, "cluster", 0, 0, 0
    DESCRIBE_ACLS = 29, "security", 1, 3, 2
    CREATE_ACLS = 30, "security", 1, 3, 2
    DELETE_ACLS = 31, "security", 1, 3, 2
    DESCRIBE_CLIENT_QUOTAS = 48, "security", 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, "security", 0, 1, 1
    DESCRIBE_QUORUM = 55, "cluster", 0, 2, 0
    UPDATE_FEATURES = 57, "cluster", 0, 2, 0
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "configs", 0, 0, 0
    PUSH_TELEMETRY = 72, "configs", 0, 0, 0
    LIST_CONFIG_RESOURCES = 74, "configs", 0, 1, 0


@attrs.frozen(slots=False)  # cached properties
class Api:
    """An API of Kafka's protocol."""

    key: ApiKey
    name: str
    module: str
    """Of `messages`."""
    lowest: int
    highest: int
    first_flexible: int = NEVER
    served_by: ServedBy = ServedBy.ANY
    lowest_read: int = attrs.field()
    """Below it a version is advertised and not served."""

    @lowest_read.default
    def _lowest(self) -> int:
        return self.lowest

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible

    def answer_head(self, version: int) -> struct.Struct:
        """The layout of an answer's size and header. ApiVersions has a header without tagged fields in all versions: who asks
        may not know them."""
        return _TAGGED_ANSWER if self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS else _ANSWER

    def load(self) -> None:
        """Import the messages now and not with the first request."""
        importlib.import_module(f".messages.{self.module}", __package__)

    def fields_of(self, cls: type) -> list[Field]:
        """The fields of one of its structures that at least one version has that is read here."""
        read = Versions(self.lowest_read, self.highest)
        return [field for field in all_fields(cls) if not field.versions.both(read).are_none]

    @functools.cached_property
    def request(self) -> type[Any]:
        """The class of its requests."""
        return self._message("Request")

    @functools.cached_property
    def response(self) -> type[Any]:
        """The class of its answers."""
        return self._message("Response")

    @functools.cached_property
    def readers(self) -> Readers:
        """The readers of its requests, by version."""
        return Readers(self)

    @functools.cached_property
    def writers(self) -> Writers:
        """The layout of the size and header of its answers, and what writes their bodies, by version."""
        return Writers(self)

    def _message(self, side: str) -> type[Any]:
        module = importlib.import_module(f".messages.{self.module}", __package__)
        message: type[Any] = getattr(module, self.name + side)
        return message


class Readers(dict[int, Reader]):
    """Version -> what reads the requests of an API in it, made when it is first needed. Owner: the API."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api

    def __missing__(self, version: int) -> Reader:
        api = self._api
        reader: Reader = make_reader(api.request, version, api.is_flexible(version))
        self[version] = reader
        return reader


class Writers(dict[int, tuple[struct.Struct, Writer]]):
    """The same for what writes the answers, with the layout of their heads. Owner: the API."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api

    def __missing__(self, version: int) -> tuple[struct.Struct, Writer]:
        api = self._api
        made = self[version] = api.answer_head(version), make_writer(api.response, version, api.is_flexible(version))
        return made


APIS: Final[dict[int, Api]] = {
    key: Api(key, "".join(word.capitalize() for word in key.name.split("_")), *key.row) for key in ApiKey
}


class ApiTable(Mapping[ApiKey, T]):
    """A table of all APIs whose rows follow from their messages, and are made when they are first looked at."""

    def __init__(self, make: Callable[[Api], T]) -> None:
        self._make = make
        self._rows: dict[ApiKey, T] = {}

    def __getitem__(self, key: ApiKey) -> T:
        if key not in self._rows:
            self._rows[key] = self._make(APIS[key])
        return self._rows[key]

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)


TOPIC_NAME: Final = Entity("topicName", STRING)
GROUP_ID: Final = Entity("groupId", STRING)
TRANSACTIONAL_ID: Final = Entity("transactionalId", STRING)
PRODUCER_ID: Final = Entity("producerId", INT64)

TOPIC_ID: Final = Entity("topicId", UUID)
PARTITION: Final = Entity("partition", INT32)
COORDINATOR_KEY: Final = Entity("coordinatorKey", STRING)
"""A group or a transactional id, as `key_type` says."""
RESOURCE_TYPE: Final = Entity("resourceType", INT8)
RESOURCE_NAME: Final = Entity("resourceName", STRING)
USER_NAME: Final = Entity("userName", STRING)

ITSELF: Final = ""
"""In place of a field: the element is a plain value."""
FORGOTTEN: Final = "forgotten_topics_data"
"""What a fetch asks for no more: it is not about that."""


def lists_naming(api: Api, cls: type, entities: Collection[Entity], path: str = "") -> Iterator[tuple[str, Field]]:
    """The lists of a structure whose elements are one of the entities or have it as a field, with their paths: `a.b` is every b
    of every a, or of the one that there is."""
    for field in api.fields_of(cls):
        if field.name == FORGOTTEN:
            continue
        inner = api.fields_of(field.element) if isinstance(field.element, type) else ()
        is_named = field.entity in entities or any(each.entity in entities and not each.is_array for each in inner)
        if field.is_array and is_named:
            yield path + field.name, field
        elif isinstance(field.element, type):
            yield from lists_naming(api, field.element, entities, f"{path}{field.name}.")


def paths_to(api: Api, cls: type, entity: Entity, path: str = "") -> Iterator[str]:
    """The paths of all fields that stand for an entity, also inside lists."""
    for field in api.fields_of(cls):
        if field.entity is entity:
            yield path + field.name
        elif isinstance(field.element, type):
            yield from paths_to(api, field.element, entity, f"{path}{field.name}.")


@cached
def names_of(cls: type) -> Mapping[Entity, str]:
    """Entities that a structure names -> the field with the name. Lists inside it are not looked at."""
    return {each.entity: each.name for each in all_fields(cls) if each.entity is not None and not each.is_array}


def name_in(element: Any, entity: Entity) -> Any:
    """Return the name in an element of a list: the field of a structure, or the string itself."""
    return element if isinstance(element, str) else getattr(element, names_of(type(element))[entity])


def values_at(value: Any, path: str) -> Iterator[Any]:
    """The values at a path: of a list its elements, of None nothing."""
    name, _, rest = path.partition(".")
    found = getattr(value, name, None)
    for each in found if isinstance(found, list) else () if found is None else (found,):
        if rest:
            yield from values_at(each, rest)
        else:
            yield each
