"""Confluent's REST API: paths, parameters, bodies, and responses.

A route is a method, a path with names in braces, and the right that it needs. Its handler is a method of `RestApi`. Only the
default context is served: a subject with another one, and the paths below /contexts, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import attrs

from ...protocol.kafka.authorization import AclOperation
from ..config.version import VERSION
from ..listeners.http.access import HttpAccess, HttpAnswer, HttpRequest
from .access import Client, identify
from .call import NO_CONTEXTS, Call
from .errors import (
    INVALID_COMPATIBILITY,
    INVALID_MODE,
    INVALID_SUBJECT,
    SCHEMA_TOO_LARGE,
    RegistryError,
    schema_not_found,
    subject_not_found,
)
from .formats.parsed import MAX_SCHEMA_CHARS, TYPES
from .records import AVRO, StoredSchema
from .registry import Registry
from .state import LEVELS, MODES, Config

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES: Final = (MEDIA_TYPE, "application/vnd.schemaregistry+json")
"""Content types that clients send beside JSON's."""
MAX_BODY_BYTES: Final = 2 * MAX_SCHEMA_CHARS
"""A schema is text in JSON there, with a backslash before each quote."""
TOO_LARGE: Final = f"Schema is too large: a request has at most {MAX_BODY_BYTES} bytes"
DEFAULT_CONTEXT: Final = "."

READ, WRITE, DELETE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER_CONFIGS


Handler = Callable[["RestApi", Call], Awaitable[Any]]


@attrs.frozen
class Route:
    """A call of the API."""

    method: str
    pattern: tuple[str, ...]
    right: AclOperation
    handler: Handler

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """Return the named segments of a path; None for another path."""
        if len(segments) != len(self.pattern):
            return None
        pairs = list(zip(self.pattern, segments, strict=True))
        if any(expected != segment for expected, segment in pairs if not expected.startswith("{")):
            return None
        return {expected[1:-1]: segment for expected, segment in pairs if expected.startswith("{")}


ROUTES: Final[list[Route]] = []


def _route(method: str, path: str, right: AclOperation = READ) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        ROUTES.append(Route(method, tuple(path.strip("/").split("/")) if path != "/" else (), right, handler))
        return handler

    return add


@attrs.define(eq=False, repr=False)
class RestApi:
    """Responds to requests of the listener. Owner: the listener."""

    registry: Registry
    access: HttpAccess

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Serve one request."""
        if (refused := self.access.refusal(request)) is not None:
            return _error(refused.status, refused.status, refused.body.decode().rstrip())
        try:
            client = await identify(self.registry.topic.broker, request)
            value = await self._serve(client, request)
        except RegistryError as exc:
            answer = _error(exc.status, exc.code, exc.message)
            challenge = (("www-authenticate", 'Basic realm="triolog schema registry"'),)
            return answer._replace(headers=challenge) if exc.status == 401 else answer
        if isinstance(value, HttpAnswer):
            return value
        return _json(200, value)

    async def _serve(self, client: Client, request: HttpRequest) -> Any:
        """Raises RegistryError."""
        segments = [unquote(each, errors="replace") for each in request.path.split("/") if each]
        if segments[:1] == ["contexts"] and len(segments) > 1:
            raise RegistryError(INVALID_SUBJECT, NO_CONTEXTS)
        route, path = _find_route("GET" if request.method == "HEAD" else request.method, segments)
        client.check(route.right)
        call = Call(path, dict(parse_qsl(request.query)), _body(request))
        if route.right is READ:
            return await route.handler(self, call)
        api, names = f"{route.method} /{'/'.join(route.pattern)}", [path["subject"]] if "subject" in path else []
        try:
            value = await route.handler(self, call)
        except RegistryError as exc:
            client.note(api, names, [str(exc.code)])
            raise
        client.note(api, names, [])
        return value

    # ---- schemas ---------------------------------------------------------------------------------------------------------

    @_route("GET", "/")
    async def root(self, _call: Call) -> Any:
        return {}

    @_route("GET", "/v1/metadata/version")
    async def server_version(self, _call: Call) -> Any:
        return {"version": f"triolog {VERSION}"}

    @_route("GET", "/v1/metadata/id")
    async def server_id(self, _call: Call) -> Any:
        return {"id": self.registry.topic.broker.cluster_id, "scope": {"path": [], "clusters": {}}}

    @_route("GET", "/contexts")
    async def contexts(self, call: Call) -> Any:
        return call.page([DEFAULT_CONTEXT])

    @_route("GET", "/schemas/types")
    async def types(self, _call: Call) -> Any:
        return list(TYPES)

    @_route("GET", "/schemas")
    async def schemas(self, call: Call) -> Any:
        state = await self.registry.topic.read()
        prefix, found = call.prefix, list[StoredSchema]()
        for subject in state.subjects():
            if subject.startswith(prefix):
                versions = state.versions(subject, deleted=call.flag("deleted"))
                found += versions[-1:] if call.flag("latestOnly") else versions
        return [await self._entity(call, each) for each in call.page(found)]

    @_route("GET", "/schemas/ids/{id}")
    async def schema_of_id(self, call: Call) -> Any:
        subject = call.query.get("subject") or None
        found = await self.registry.schema(call.schema_id, subject)
        value = await self._content(call, found)
        if subject is not None:
            value |= {"subject": found.subject, "version": found.version}
        if call.flag("fetchMaxId"):
            value["maxId"] = (await self.registry.topic.read()).max_id
        return value

    @_route("GET", "/schemas/ids/{id}/schema")
    async def text_of_id(self, call: Call) -> Any:
        return await self._text(call, await self.registry.schema(call.schema_id))

    @_route("GET", "/schemas/ids/{id}/subjects")
    async def subjects_of_id(self, call: Call) -> Any:
        return call.page(sorted({each.subject for each in await self._uses(call)}))

    @_route("GET", "/schemas/ids/{id}/versions")
    async def versions_of_id(self, call: Call) -> Any:
        return call.page([{"subject": each.subject, "version": each.version} for each in await self._uses(call)])

    async def _uses(self, call: Call) -> list[StoredSchema]:
        await self.registry.schema(call.schema_id)
        uses = (await self.registry.topic.read()).uses(call.schema_id)
        return [each for each in uses if call.flag("deleted") or not each.is_deleted]

    @_route("GET", "/schemas/guids/{guid}")
    async def schema_of_guid(self, call: Call) -> Any:
        return await self._content(call, await self.registry.schema((await self._ids(call))[0]))

    @_route("GET", "/schemas/guids/{guid}/ids")
    async def ids_of_guid(self, call: Call) -> Any:
        return [{"context": DEFAULT_CONTEXT, "id": each} for each in await self._ids(call)]

    async def _ids(self, call: Call) -> list[int]:
        guid = call.path["guid"]
        found = (await self.registry.topic.read()).ids_with(guid.lower(), TYPES)
        if not found:
            raise schema_not_found(guid[:40])
        return found

    # ---- subjects --------------------------------------------------------------------------------------------------------

    @_route("GET", "/subjects")
    async def subjects(self, call: Call) -> Any:
        state, prefix = await self.registry.topic.read(), call.prefix
        only_deleted, deleted = call.flag("deletedOnly"), call.flag("deleted")

        def is_listed(subject: str) -> bool:
            is_active = bool(state.versions(subject))
            return not is_active if only_deleted else is_active or deleted

        return call.page([each for each in state.subjects() if each.startswith(prefix) and is_listed(each)])

    @_route("POST", "/subjects/{subject}")
    async def look_up(self, call: Call) -> Any:
        deleted, normalize = call.flag("deleted"), call.flag("normalize")
        submission = call.submission()
        found = await self.registry.find(call.named_subject, submission, normalize=normalize, deleted=deleted)
        return await self._entity(call, found)

    @_route("DELETE", "/subjects/{subject}", DELETE)
    async def delete_subject(self, call: Call) -> Any:
        return await self.registry.delete_subject(call.named_subject, permanent=call.flag("permanent"))

    @_route("GET", "/subjects/{subject}/versions")
    async def versions(self, call: Call) -> Any:
        state, subject, only_deleted = await self.registry.topic.read(), call.named_subject, call.flag("deletedOnly")
        found = state.versions(subject, deleted=only_deleted or call.flag("deleted"))
        found = [each for each in found if each.is_deleted or not only_deleted]
        if not found:
            raise subject_not_found(subject)
        return call.page([each.version for each in found])

    @_route("POST", "/subjects/{subject}/versions", WRITE)
    async def register(self, call: Call) -> Any:
        stored = await self.registry.register(call.named_subject, call.submission(), normalize=call.flag("normalize"))
        # Without the schema: clients keep what is there, and some want it in the form in which they have sent it.
        return {"id": stored.id, "version": stored.version, "guid": stored.identity[1]}

    @_route("GET", "/subjects/{subject}/versions/{version}")
    async def version(self, call: Call) -> Any:
        return await self._entity(call, await self._version(call))

    @_route("GET", "/subjects/{subject}/versions/{version}/schema")
    async def text_of_version(self, call: Call) -> Any:
        return await self._text(call, await self._version(call))

    @_route("GET", "/subjects/{subject}/versions/{version}/referencedby")
    async def referenced_by(self, call: Call) -> Any:
        found = await self._version(call)
        referrers = (await self.registry.topic.read()).referrers(found.subject, found.version)
        return call.page(sorted({each.id for each in referrers}))

    async def _version(self, call: Call) -> StoredSchema:
        return await self.registry.version(call.named_subject, call.version, deleted=call.flag("deleted"))

    async def _content(self, call: Call, stored: StoredSchema) -> dict[str, Any]:
        value: dict[str, Any] = {"guid": stored.identity[1]}
        if stored.schema_type != AVRO:
            value["schemaType"] = stored.schema_type
        if stored.references:
            value["references"] = [each.as_json() for each in stored.references]
        return {**value, "schema": await self.registry.text(stored, call.query.get("format", ""))}

    async def _entity(self, call: Call, stored: StoredSchema) -> dict[str, Any]:
        content = await self._content(call, stored)
        value = {"subject": stored.subject, "version": stored.version, "id": stored.id, **content}
        return {**value, "deleted": True} if stored.is_deleted else value

    async def _text(self, call: Call, stored: StoredSchema) -> HttpAnswer:
        """Return the schema itself, without an object around it."""
        return HttpAnswer(200, (await self.registry.text(stored, call.query.get("format", ""))).encode(), MEDIA_TYPE)

    @_route("DELETE", "/subjects/{subject}/versions/{version}", DELETE)
    async def delete_version(self, call: Call) -> Any:
        return await self.registry.delete_version(call.named_subject, call.version, permanent=call.flag("permanent"))

    # ---- compatibility, settings -----------------------------------------------------------------------------------------

    @_route("POST", "/compatibility/subjects/{subject}/versions/{version}")
    async def compare(self, call: Call) -> Any:
        return await self._compare(call, call.version)

    @_route("POST", "/compatibility/subjects/{subject}/versions")
    async def compare_all(self, call: Call) -> Any:
        return await self._compare(call, None)

    async def _compare(self, call: Call, version: int | None) -> Any:
        normalize = call.flag("normalize")
        found = await self.registry.compare(call.named_subject, call.submission(), version, normalize=normalize)
        return {"is_compatible": not found} | ({"messages": found} if call.flag("verbose") else {})

    @_route("GET", "/config")
    @_route("GET", "/config/{subject}")
    async def config(self, call: Call) -> Any:
        return _config(await self.registry.config(call.subject, default=call.flag("defaultToGlobal")))

    @_route("PUT", "/config", ALTER)
    @_route("PUT", "/config/{subject}", ALTER)
    async def set_config(self, call: Call) -> Any:
        given = {name: value for name, value in call.body.items() if value is not None}
        if unknown := sorted(given.keys() - {"compatibility", "normalize"}):
            raise RegistryError(422, f"{unknown[0][:40]} is not supported. Use compatibility and normalize")
        level, normalize = given.get("compatibility"), given.get("normalize")
        if level is not None and str(level).upper() not in LEVELS:
            raise RegistryError(INVALID_COMPATIBILITY, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        if normalize is not None and not isinstance(normalize, bool):
            raise RegistryError(422, "normalize is not true or false")
        await self.registry.set_config(call.subject, None if level is None else str(level).upper(), normalize)
        return given if level is None else {**given, "compatibility": str(level).upper()}

    @_route("DELETE", "/config", ALTER)
    @_route("DELETE", "/config/{subject}", ALTER)
    async def delete_config(self, call: Call) -> Any:
        return _config(await self.registry.delete_config(call.subject))

    @_route("GET", "/mode")
    @_route("GET", "/mode/{subject}")
    async def mode(self, call: Call) -> Any:
        return {"mode": await self.registry.mode(call.subject, default=call.flag("defaultToGlobal"))}

    @_route("PUT", "/mode", ALTER)
    @_route("PUT", "/mode/{subject}", ALTER)
    async def set_mode(self, call: Call) -> Any:
        mode = str(call.body.get("mode") or "").upper()
        if mode not in MODES:
            raise RegistryError(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
        await self.registry.set_mode(call.subject, mode, force=call.flag("force"))
        return {"mode": mode}

    @_route("DELETE", "/mode", ALTER)
    @_route("DELETE", "/mode/{subject}", ALTER)
    async def delete_mode(self, call: Call) -> Any:
        return {"mode": await self.registry.delete_mode(call.subject)}


# ---- requests ------------------------------------------------------------------------------------------------------------


def _find_route(method: str, segments: Sequence[str]) -> tuple[Route, dict[str, str]]:
    """Raises RegistryError."""
    allowed = []
    for route in ROUTES:
        path = route.match(segments)
        if path is not None and route.method == method:
            return route, path
        if path is not None:
            allowed.append(route.method)
    if allowed:
        raise RegistryError(405, f"HTTP 405 Method Not Allowed: use {', '.join(sorted(set(allowed)))}")
    raise RegistryError(404, "HTTP 404 Not Found: the registry has no such call")


def _body(request: HttpRequest) -> Mapping[str, Any]:
    """Raises RegistryError."""
    if not request.body:
        return {}
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError) as exc:
        raise RegistryError(400, f"the body is not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise RegistryError(400, "the body is not a JSON object")
    return value


# ---- responses -----------------------------------------------------------------------------------------------------------


def _config(config: Config) -> dict[str, Any]:
    return {"compatibilityLevel": config.level} | ({"normalize": True} if config.normalize else {})


def _json(status: int, value: Any) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(value).encode(), MEDIA_TYPE)


def _error(status: int, code: int, message: str) -> HttpAnswer:
    return _json(status, {"error_code": code, "message": message})


def body_too_large() -> HttpAnswer:
    """Return the response to a request above MAX_BODY_BYTES."""
    return _error(422, SCHEMA_TOO_LARGE, TOO_LARGE)
