"""A whole request answered with one error, for every API and version. Source: Kafka's AbstractRequest.getErrorResponse.

Most answers repeat the lists of their request with an error code beside each element. Which lists those are follows from what
the fields of both stand for (`protocol.kafka.apis`): `SHAPES` has it for each API. What does not follow is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import ITSELF, Api, ApiKey, ApiTable, lists_naming, names_of
from ....protocol.schema.fields import Element, Entity, Field, Versions, all_fields
from ....protocol.schema.source import Source
from ..access.rules import finish

NOBODY: Final = -1
ELEMENTS_PER_PAUSE: Final = 32
"""Of a list; there are lists in lists."""
EVERY_VERSION: Final = Versions.parse("0+")
QUOTA_ENTITY: Final = {"entity_type": "entity_type", "entity_name": "entity_name"}


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


@attrs.frozen
class Shape:
    """The shape of an API's error response: its lists, and the fields beside the top-level error code."""

    lists: tuple[Repeated, ...]
    copied: tuple[str, ...]
    fixed: Mapping[str, Any]
    has_top: bool


@attrs.frozen(kw_only=True)
class Own:
    """The properties of an API's error response in Kafka that do not follow from the meaning of its fields."""

    fixed: Mapping[str, Any] = attrs.field(factory=dict)
    """Values of fields, on top and in its lists, that are not their defaults."""
    copied: tuple[str, ...] = ()
    """Fields of the request that stand on top of the answer too."""
    lists: tuple[Repeated, ...] = ()
    """In place of those that follow."""
    versions: Mapping[str, Versions] = attrs.field(factory=dict)
    """Of a list that is repeated in fewer versions than have it."""
    has_codes: bool = True
    """Otherwise lists are repeated although there is no error code in them."""
    has_top: bool = True
    """Otherwise a code on top stays 0."""


OWN: Final[dict[ApiKey, Own]] = {
    ApiKey.PRODUCE: Own(fixed={"base_offset": -1}),
    ApiKey.FETCH: Own(
        fixed={"high_watermark": -1, "records": b""},
        copied=("session_id",),
        versions={"responses": Versions.parse("0-12")},
    ),
    ApiKey.SHARE_FETCH: Own(versions={"responses": Versions.parse("none")}),
    ApiKey.SHARE_ACKNOWLEDGE: Own(versions={"responses": Versions.parse("none")}),
    ApiKey.METADATA: Own(has_top=False),
    ApiKey.OFFSET_FETCH: Own(fixed={"committed_offset": -1, "metadata": ""}, versions={"topics": Versions.parse("0-1")}),
    ApiKey.OFFSET_DELETE: Own(versions={"topics": Versions.parse("none")}),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Own(versions={"responses": Versions.parse("none")}),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Own(versions={"responses": Versions.parse("none")}),
    ApiKey.DESCRIBE_QUORUM: Own(versions={"topics": Versions.parse("none")}),
    ApiKey.FIND_COORDINATOR: Own(fixed={"node_id": NOBODY, "port": NOBODY}),
    ApiKey.JOIN_GROUP: Own(fixed={"protocol_name": ""}),
    ApiKey.DELETE_RECORDS: Own(fixed={"low_watermark": -1}),
    ApiKey.INIT_PRODUCER_ID: Own(fixed={"producer_id": NOBODY, "producer_epoch": -1}),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Own(has_codes=False),
    ApiKey.CREATE_ACLS: Own(lists=(Repeated("results", "creations", {}),)),
    ApiKey.DELETE_ACLS: Own(lists=(Repeated("filter_results", "filters", {}),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Own(fixed={"entries": None}),
    ApiKey.ALTER_CLIENT_QUOTAS: Own(lists=(Repeated("entries", "entries", {}, Repeated("entity", "entity", QUOTA_ENTITY)),)),
}
NOTHING_OWN: Final = Own()


def _shape(api: Api) -> Shape:
    own = OWN.get(api.key, NOTHING_OWN)
    lists = own.lists or tuple(_repeated(api, own, api.response, api.request))
    return Shape(lists, own.copied, _fixed(own, api.response), own.has_top)


def _repeated(api: Api, own: Own, answer: type, asked: type) -> Iterator[Repeated]:
    """The lists that have room for errors, and whose elements name what those of a list of the request name."""
    for field in api.fields_of(answer):
        is_repeated = field.is_array and isinstance(field.element, type) and (_has_codes(field.element) or not own.has_codes)
        names = _names(field) if is_repeated else {}
        for path, source in lists_naming(api, asked, names):
            versions = field.versions.both(source.versions)
            if versions.are_none:
                continue
            theirs = _names(source)
            yield Repeated(
                field.name,
                path,
                {name: theirs[entity] for entity, name in names.items() if entity in theirs},
                _inner(api, own, field.element, source.element),
                _fixed(own, field.element),
                _error_field(field.element) or "error_code",
                own.versions.get(field.name, versions),
            )


def _names(field: Field) -> Mapping[Entity, str]:
    """Entities that the elements of a list name -> the field with the name, or ITSELF."""
    if isinstance(field.element, type):
        return names_of(field.element)
    return {field.entity: ITSELF} if field.entity else {}


def _inner(api: Api, own: Own, answer: Element, asked: Element) -> Repeated | None:
    """The list inside an element that has the errors when the element itself has none."""
    if not (isinstance(answer, type) and isinstance(asked, type)) or _error_field(answer):
        return None
    return next(_repeated(api, own, answer, asked), None)


def _error_field(element: Element) -> str | None:
    fields = all_fields(element) if isinstance(element, type) else ()
    return next((each.name for each in fields if each.name.endswith("error_code")), None)


def _fixed(own: Own, element: Element) -> dict[str, Any]:
    names = {field.name for field in all_fields(element)} if isinstance(element, type) else {}
    return {name: value for name, value in own.fixed.items() if name in names}


SHAPES: Final = ApiTable(_shape)

FIRST_WITH_FENCED: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions whose clients know PRODUCER_FENCED; the others are told INVALID_PRODUCER_EPOCH."""


def known_code(key: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    """The error code that a client of that version knows."""
    if code is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED.get(key, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def error_response(api: Api, version: int, request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """The answer of an API to a request that failed as a whole."""
    return finish(error_response_steps(api, version, request, code, message))


def error_response_steps(
    api: Api, version: int, request: Any, code: ErrorCode, message: str | None = None
) -> Generator[None, None, Any]:
    """`error_response` of a large request, in steps."""
    shape, code = SHAPES[api.key], known_code(api.key, version, code)
    response = api.response()
    if shape.has_top and hasattr(response, "error_code"):
        put_error(response, "error_code", code, message)
    for name in shape.copied:
        setattr(response, name, getattr(request, name))
    for name, value in shape.fixed.items():
        setattr(response, name, value)
    for each in shape.lists:
        if version in each.versions:
            repeated = yield from repeat_steps(each, api.response, request, code, message)
            setattr(response, each.answer, getattr(response, each.answer) + repeated)
    return _fitted(api.key, version, response)


def _fitted(key: ApiKey, version: int, response: Any) -> Any:
    """Set the fields of JoinGroup and Metadata whose value for an error depends on the version."""
    if key is ApiKey.JOIN_GROUP and version >= FIRST_WITHOUT_PROTOCOL_NAME:
        response.protocol_name = None
    elif key is ApiKey.METADATA:
        for topic in response.topics:
            topic.name = topic.name or ""
    return response


FIRST_WITHOUT_PROTOCOL_NAME: Final = 7


def repeat(each: Repeated, answer: type, request: Any, code: ErrorCode, message: str | None = None) -> list[Any]:
    """The elements of one list of an answer, each with the error."""
    return finish(repeat_steps(each, answer, request, code, message))


def repeat_steps(
    each: Repeated, answer: type, request: Any, code: ErrorCode, message: str | None = None
) -> Generator[None, None, list[Any]]:
    """`repeat` of a long list, in steps."""
    element_class, elements = element_of(answer, each.answer), list[Any]()
    for number, asked in enumerate(_asked(request, each.asked), 1):
        elements.append((yield from _element_steps(each, element_class, asked, code, message)))
        if not number % ELEMENTS_PER_PAUSE:
            yield
    return elements


def _element_steps(each: Repeated, cls: type, asked: Any, code: ErrorCode, message: str | None) -> Generator[None, None, Any]:
    element = cls()
    for name, source in each.copied.items():
        setattr(element, name, asked if source == ITSELF else getattr(asked, source))
    for name, value in each.fixed.items():
        setattr(element, name, value)
    if each.inner is not None:
        setattr(element, each.inner.answer, (yield from repeat_steps(each.inner, cls, asked, code, message)))
    if hasattr(element, each.error):
        put_error(element, each.error, code, message)
    return element


def put_error(element: Any, name: str, code: int, message: str | None) -> None:
    """Set the error of a structure, with its message where there is room for one."""
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
    cls = type(response)
    if cls not in _collectors:
        _collectors[cls] = _made_collector(_plan(cls), cls.__name__)
    _collectors[cls](response, found)
    return tuple(found)


def error_codes_steps(response: Any) -> Generator[None, None, tuple[int, ...]]:
    """`error_codes` of a large answer, in steps."""
    found: dict[int, None] = {}
    yield from _collect_steps(_plan(type(response)), response, found)
    return tuple(found)


class Plan(NamedTuple):
    """The places of the error codes in a structure: its own fields, and lists of structures that have some."""

    codes: tuple[str, ...]
    lists: tuple[tuple[str, Plan], ...]


Collector = Callable[[Any, dict[int, None]], None]
"""(value, found) -> None: adds the codes that are in it."""

_plans: Final[dict[type, Plan]] = {}
_collectors: Final[dict[type, Collector]] = {}


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


def _made_collector(plan: Plan, name: str) -> Collector:
    """`_collect` of a plan as one function: an answer may have a hundred partitions, and there is one to each request."""
    source = Source()
    with source.block("def collect(value, found):"):
        source.add("pass")
        _add_lines(source, plan, "value")
    return source.function("collect", f"<error codes of {name}>")


def _add_lines(source: Source, plan: Plan, value: str) -> None:
    for name in plan.codes:
        with source.block(f"if {value}.{name}:"):
            source.add(f"found[{value}.{name}] = None")
    for name, inner in plan.lists:
        element = source.variable()
        with source.block(f"for {element} in {value}.{name} or ():"):
            _add_lines(source, inner, element)


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
