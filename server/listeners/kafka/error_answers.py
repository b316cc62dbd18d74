"""A whole request answered with one error, for every API and version. Source: Kafka's AbstractRequest.getErrorResponse.

Most answers repeat the lists of their request with an error code beside each element. `SHAPES` says for each API which lists
those are, and is therefore also the table of where a request names topics and partitions: `parts` and `error_codes` read it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import Api, ApiKey
from ....protocol.schema.fields import Versions, all_fields

ITSELF: Final = ""
"""In place of a field: the element is a plain value."""
NOBODY: Final = -1
ELEMENTS_PER_PAUSE: Final = 32
"""Of a list; there are lists in lists."""
EVERY_VERSION: Final = Versions.parse("0+")


@attrs.frozen
class Repeated:
    """A list of the answer that repeats a list of the request: `copied` fields of each element and its error."""

    answer: str
    asked: str
    copied: Mapping[str, str]
    """Field of the answer's element -> of the request's."""
    inner: Repeated | None = None
    """The error stands there, one level down."""
    fixed: Mapping[str, Any] = attrs.field(factory=dict)
    error: str = "error_code"
    versions: Versions = EVERY_VERSION
    """Where Kafka's answer has it."""
    partition: str = "partition_index"
    """The field of an inner list that is a partition's number, in the answer."""


@attrs.frozen
class Shape:
    """How an API's error answer is made: its lists, and what is beside the error code on top."""

    lists: tuple[Repeated, ...] = ()
    copied: Mapping[str, str] = attrs.field(factory=dict)
    fixed: Mapping[str, Any] = attrs.field(factory=dict)
    has_top: bool = True


def _partitions(answer: str, asked: str, index: str = "partition_index", **more: Any) -> Repeated:
    return Repeated(answer, asked, {more.pop("named", "partition_index"): index}, **more)


def _topics(answer: str, asked: str, inner: Repeated, name: str = "name", **more: Any) -> Repeated:
    copied = more.pop("copied", {})
    return Repeated(answer, asked, {more.pop("named", name): name, **copied}, inner, **more)


_BY_ID: Final = {"topic_id": "topic_id"}
_SAME: Final = _partitions("partitions", "partitions")
_NUMBERS: Final = _partitions("partitions", "partition_indexes", ITSELF)
_PLAIN_OFFSETS: Final = {"committed_offset": -1, "metadata": ""}
_RESOURCES: Final = {"resource_type": "resource_type", "resource_name": "resource_name"}
_TXN_PARTITIONS: Final = _partitions("results_by_partition", "partitions", ITSELF, error="partition_error_code")

SHAPES: Final[dict[ApiKey, Shape]] = {
    ApiKey.PRODUCE: Shape(
        (
            _topics(
                "responses",
                "topic_data",
                _partitions(
                    "partition_responses",
                    "partition_data",
                    "index",
                    named="index",
                    partition="index",
                    fixed={"base_offset": -1},
                ),
                copied=_BY_ID,
            ),
        )
    ),
    ApiKey.FETCH: Shape(
        (
            _topics(
                "responses",
                "topics",
                _partitions("partitions", "partitions", "partition", fixed={"high_watermark": -1, "records": b""}),
                "topic",
                copied=_BY_ID,
                versions=Versions.parse("0-12"),
            ),
        ),
        copied={"session_id": "session_id"},
    ),
    ApiKey.LIST_OFFSETS: Shape((_topics("topics", "topics", _SAME),)),
    ApiKey.METADATA: Shape((Repeated("topics", "topics", {"name": "name", **_BY_ID}),), has_top=False),
    ApiKey.API_VERSIONS: Shape(),
    ApiKey.OFFSET_COMMIT: Shape((_topics("topics", "topics", _SAME, copied=_BY_ID),)),
    ApiKey.OFFSET_FETCH: Shape(
        (
            _topics(
                "topics",
                "topics",
                _partitions("partitions", "partition_indexes", ITSELF, fixed=_PLAIN_OFFSETS),
                versions=Versions.parse("0-1"),
            ),
            Repeated("groups", "groups", {"group_id": "group_id"}, versions=Versions.parse("8+")),
        )
    ),
    ApiKey.FIND_COORDINATOR: Shape(
        (
            Repeated(
                "coordinators",
                "coordinator_keys",
                {"key": ITSELF},
                fixed={"node_id": NOBODY, "port": NOBODY},
                versions=Versions.parse("4+"),
            ),
        ),
        fixed={"node_id": NOBODY, "port": NOBODY},
    ),
    ApiKey.JOIN_GROUP: Shape(fixed={"protocol_name": ""}),
    ApiKey.HEARTBEAT: Shape(),
    ApiKey.LEAVE_GROUP: Shape(),
    ApiKey.SYNC_GROUP: Shape(),
    ApiKey.DESCRIBE_GROUPS: Shape((Repeated("groups", "groups", {"group_id": ITSELF}),)),
    ApiKey.LIST_GROUPS: Shape(),
    ApiKey.SASL_HANDSHAKE: Shape(),
    ApiKey.CREATE_TOPICS: Shape((Repeated("topics", "topics", {"name": "name"}),)),
    ApiKey.DELETE_TOPICS: Shape(
        (
            Repeated("responses", "topics", {"name": "name", **_BY_ID}, versions=Versions.parse("6+")),
            Repeated("responses", "topic_names", {"name": ITSELF}, versions=Versions.parse("0-5")),
        )
    ),
    ApiKey.DELETE_RECORDS: Shape(
        (_topics("topics", "topics", _partitions("partitions", "partitions", fixed={"low_watermark": -1})),)
    ),
    ApiKey.INIT_PRODUCER_ID: Shape(fixed={"producer_id": NOBODY, "producer_epoch": -1}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Shape(
        (
            _topics(
                "topics",
                "topics",
                _partitions("partitions", "partitions", "partition", named="partition", partition="partition"),
                "topic",
            ),
        )
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Shape(
        (
            _topics(
                "results_by_topic_v3_and_below",
                "v3_and_below_topics",
                _TXN_PARTITIONS,
                versions=Versions.parse("0-3"),
            ),
        )
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Shape(),
    ApiKey.END_TXN: Shape(),
    ApiKey.WRITE_TXN_MARKERS: Shape(
        (Repeated("markers", "markers", {"producer_id": "producer_id"}, _topics("topics", "topics", _NUMBERS)),)
    ),
    ApiKey.TXN_OFFSET_COMMIT: Shape((_topics("topics", "topics", _SAME),)),
    ApiKey.DESCRIBE_ACLS: Shape(),
    ApiKey.CREATE_ACLS: Shape((Repeated("results", "creations", {}),)),
    ApiKey.DELETE_ACLS: Shape((Repeated("filter_results", "filters", {}),)),
    ApiKey.DESCRIBE_CONFIGS: Shape((Repeated("results", "resources", _RESOURCES),)),
    ApiKey.ALTER_CONFIGS: Shape((Repeated("responses", "resources", _RESOURCES),)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Shape((Repeated("responses", "resources", _RESOURCES),)),
    ApiKey.DESCRIBE_LOG_DIRS: Shape(),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Shape(
        (_topics("results", "dirs.topics", _partitions("partitions", "partitions", ITSELF), named="topic_name"),)
    ),
    ApiKey.SASL_AUTHENTICATE: Shape(),
    ApiKey.CREATE_PARTITIONS: Shape((Repeated("results", "topics", {"name": "name"}),)),
    ApiKey.DELETE_GROUPS: Shape((Repeated("results", "groups_names", {"group_id": ITSELF}),)),
    ApiKey.ELECT_LEADERS: Shape(
        (
            _topics(
                "replica_election_results",
                "topic_partitions",
                _partitions("partition_result", "partitions", ITSELF, named="partition_id", partition="partition_id"),
                "topic",
            ),
        )
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Shape((_topics("responses", "topics", _SAME),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Shape((_topics("topics", "topics", _NUMBERS),)),
    ApiKey.OFFSET_DELETE: Shape((_topics("topics", "topics", _SAME, versions=Versions.parse("none")),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Shape(fixed={"entries": None}),
    ApiKey.ALTER_CLIENT_QUOTAS: Shape(
        (Repeated("entries", "entries", {}, Repeated("entity", "entity", dict.fromkeys(("entity_type", "entity_name"), "="))),)
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Shape((Repeated("results", "users", {"user": "name"}),)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Shape(
        (
            Repeated("results", "deletions", {"user": "name"}),
            Repeated("results", "upsertions", {"user": "name"}),
        )
    ),
    ApiKey.UPDATE_FEATURES: Shape(),
    ApiKey.DESCRIBE_CLUSTER: Shape(),
    ApiKey.DESCRIBE_PRODUCERS: Shape((_topics("topics", "topics", _NUMBERS),)),
    ApiKey.DESCRIBE_TRANSACTIONS: Shape((Repeated("transaction_states", "transactional_ids", {"transactional_id": ITSELF}),)),
    ApiKey.LIST_TRANSACTIONS: Shape(),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Shape(),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Shape((Repeated("groups", "group_ids", {"group_id": ITSELF}),)),
    ApiKey.LIST_CONFIG_RESOURCES: Shape(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Shape((Repeated("topics", "topics", {"name": "name"}),)),
}


def error_response(api: Api, version: int, request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """The answer of an API to a request that failed as a whole."""
    shape = SHAPES[api.key]
    response = api.response()
    if shape.has_top and hasattr(response, "error_code"):
        _put_error(response, "error_code", code, message)
    for name, source in shape.copied.items():
        setattr(response, name, getattr(request, source))
    for name, value in shape.fixed.items():
        setattr(response, name, value)
    for each in shape.lists:
        if version in each.versions:
            setattr(response, each.answer, getattr(response, each.answer) + repeat(each, api.response, request, code, message))
    return _fitted(api.key, version, response)


def _fitted(key: ApiKey, version: int, response: Any) -> Any:
    """The two fields whose value for an error depends on the version."""
    if key is ApiKey.JOIN_GROUP and version >= FIRST_WITHOUT_PROTOCOL_NAME:
        response.protocol_name = None
    elif key is ApiKey.METADATA:
        for topic in response.topics:
            topic.name = topic.name or ""
    return response


FIRST_WITHOUT_PROTOCOL_NAME: Final = 7


def repeat(each: Repeated, answer: type, request: Any, code: ErrorCode, message: str | None = None) -> list[Any]:
    """The elements of one list of an answer, each with the error."""
    element_class = element_of(answer, each.answer)
    return [_element(each, element_class, asked, code, message) for asked in _asked(request, each.asked)]


def _element(each: Repeated, cls: type, asked: Any, code: ErrorCode, message: str | None) -> Any:
    element = cls()
    for name, source in each.copied.items():
        setattr(element, name, asked if source == ITSELF else getattr(asked, name if source == "=" else source))
    for name, value in each.fixed.items():
        setattr(element, name, value)
    if each.inner is not None:
        setattr(element, each.inner.answer, repeat(each.inner, cls, asked, code, message))
    if hasattr(element, each.error):
        _put_error(element, each.error, code, message)
    return element


def _put_error(element: Any, name: str, code: ErrorCode, message: str | None) -> None:
    setattr(element, name, int(code))
    if hasattr(element, "error_message"):
        element.error_message = message


def _asked(request: Any, path: str) -> list[Any]:
    """A list of a request, null as empty; `a.b` is every b of every a."""
    name, _, rest = path.partition(".")
    found = getattr(request, name) or []
    return [inner for each in found for inner in _asked(each, rest)] if rest else list(found)


def element_of(cls: type[Any], name: str) -> type[Any]:
    """The class of a list's elements."""
    element = next(field.element for field in all_fields(cls) if field.name == name)
    assert isinstance(element, type)
    return element


# ---- what an answer says -----------------------------------------------------------------------------------------------------


def error_codes(response: Any) -> tuple[int, ...]:
    """The codes of the errors that are anywhere in an answer, each once."""
    found: dict[int, None] = {}
    _collect(_plan(type(response)), response, found)
    return tuple(found)


def error_codes_steps(response: Any) -> Generator[None, None, tuple[int, ...]]:
    """The same in steps."""
    found: dict[int, None] = {}
    yield from _collect_steps(_plan(type(response)), response, found)
    return tuple(found)


class Plan(NamedTuple):
    """Where a structure has error codes: its own fields, and lists of structures that have some."""

    codes: tuple[str, ...]
    lists: tuple[tuple[str, Plan], ...]


_plans: Final[dict[type, Plan]] = {}


def _plan(cls: type) -> Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _plan_of(cls)
    return plan


def _plan_of(cls: type) -> Plan:
    fields = all_fields(cls)
    return Plan(
        tuple(field.name for field in fields if field.name.endswith("error_code") and not field.is_array),
        tuple(
            (field.name, _plan_of(field.element))
            for field in fields
            if field.is_array and isinstance(field.element, type) and _has_codes(field.element)
        ),
    )


def _collect(plan: Plan, value: Any, found: dict[int, None]) -> None:
    for name in plan.codes:
        if code := getattr(value, name):
            found[code] = None
    for name, inner in plan.lists:
        for element in getattr(value, name) or ():
            _collect(inner, element, found)


def _collect_steps(plan: Plan, value: Any, found: dict[int, None]) -> Generator[None, None, None]:
    _collect(Plan(plan.codes, ()), value, found)
    for name, inner in plan.lists:
        for number, element in enumerate(getattr(value, name) or (), 1):
            if inner.lists:
                yield from _collect_steps(inner, element, found)
            else:
                _collect(inner, element, found)
            if not number % ELEMENTS_PER_PAUSE:
                yield


def _has_codes(cls: type) -> bool:
    return any(
        field.name.endswith("error_code") or (field.is_array and isinstance(field.element, type) and _has_codes(field.element))
        for field in all_fields(cls)
    )
