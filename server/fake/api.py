"""The control of a broker over HTTP and JSON, for tests in any language. Never on by default: whoever reaches the port, and has
its token where there is one, can do everything to the data.

`ROUTES` has every call with the fields that it accepts, in the body's object or behind the `?`; docs/testing-with-triolog.md
says what they do. Answers are JSON. 400: what was sent means nothing; 404: there is no such thing; 408: it did not come in
time; 409: the broker is down; 413: the body is too large; 422: the broker refuses, with Kafka's `error`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import attrs

from ...protocol.errors import RequestError, TriologError
from ...protocol.types import TopicPartition
from ..broker import PlainRecord
from ..config.values import Address
from ..listeners.http.access import JSON, HttpAccess, HttpAnswer, HttpRequest
from .faults.faults import FaultRules
from .faults.requests import Wanted
from .life import CONTROL, Life, NotRunningError, Seed, noted
from .token_issuer import LIFETIME_S, TokenIssuer
from .values import BadRequestError, plain_record, some, told_record, whole_number, yes_or_no
from .views.fault_views import PATIENCE_S, FaultsView, FaultView, RequestsView
from .views.groups_view import GroupsView, MemberView
from .views.log_view import LogView
from .views.share_groups_view import ShareGroupsView
from .views.streams_groups_view import StreamsGroupsView

Told = Mapping[str, Any]

WANTED: Final = frozenset(field.name for field in attrs.fields(Wanted))
"""What requests are chosen by."""
ASKED: Final = tuple(sorted(WANTED))
_NUMBERS: Final = ("node", "after")
_NAME: Final = "([^/]+)"
_NUMBER: Final = "([0-9]+)"
FAULTS: Final = "/faults"
TOKEN_PATH: Final = "/oauth/token"
DISK_FAULTS: Final = "/disk-faults"

Handler = Callable[..., Awaitable[Any]]
"""(api, fields of the request, parts of the path)."""
H = TypeVar("H", bound=Handler)


class Route(NamedTuple):
    """A call of the HTTP API. `fields` None: the handler checks the fields itself."""

    method: str
    pattern: str
    handler: Handler
    fields: Collection[str] | None


ROUTES: Final[list[Route]] = []


def _call(method: str, pattern: str, *fields: str) -> Callable[[H], H]:
    """Declare a handler as the call of this method and path, which accepts these fields."""

    def declare(handler: H) -> H:
        ROUTES.append(Route(method, pattern, handler, fields))
        return handler

    return declare


@attrs.define(eq=False, repr=False)
class ControlApi:
    """Answers the requests of one control port."""

    life: Life
    seed: Seed = attrs.field(factory=Seed)
    faults: FaultsView = attrs.field(init=False)
    requests: RequestsView = attrs.field(init=False)
    groups: GroupsView = attrs.field(init=False)
    share_groups: ShareGroupsView = attrs.field(init=False)
    streams_groups: StreamsGroupsView = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.faults = FaultsView(self.life.faults, self.life.disk_faults)
        self.requests = RequestsView(self.life.requests)
        self.groups = GroupsView(lambda: self.life.core, self.faults)
        self.share_groups = ShareGroupsView(lambda: self.life.core)
        self.streams_groups = StreamsGroupsView(lambda: self.life.core)

    # ---- faults and requests ---------------------------------------------------------------------------------------------

    def rules(self, of: str) -> FaultRules[Any]:
        """The rules of requests (`/faults`) or of the device (`/disk-faults`)."""
        return self.life.faults if of == FAULTS else self.life.disk_faults

    @_call("GET", "/requests", *ASKED, "last")
    async def list_requests(self, told: Told) -> Any:
        last = whole_number(told, "last")
        if last is not None and last < 1:
            raise BadRequestError(f"last is {last}, expected the number of requests, 0 or more")
        found = self.requests.find(**_wanted(told))
        return [request.as_json() for request in found[-(last or len(found)) :]]

    @_call("DELETE", "/requests")
    async def clear_requests(self, _told: Told) -> Any:
        self.requests.clear()
        return {}

    @_call("POST", "/requests/wait", *ASKED, "count", "timeout_ms")
    async def wait_requests(self, told: Told) -> Any:
        count = whole_number(told, "count") or 1
        found = await self.requests.wait_for(count=count, timeout_s=_timeout_s(told), **_wanted(told))
        return [request.as_json() for request in found]

    @_call("GET", "/story", "client_id", "group")
    async def tell_story(self, told: Told) -> Any:
        from .views.story import story_of  # most tests do not ask

        client_id, group = (None if told.get(name) is None else str(told[name]) for name in ("client_id", "group"))
        story = story_of(self.life.requests, client_id=client_id, group=group)
        return {**story.as_json(), "text": str(story)}

    # ---- topics ----------------------------------------------------------------------------------------------------------

    @_call("GET", "/topics")
    async def list_topics(self, _told: Told) -> Any:
        return {name: self._log(name).end_offsets() for name in self.life.core.topics.names()}

    @_call("POST", "/topics", "name", "partitions", "config")
    async def create_topic(self, told: Told) -> Any:
        name, partitions = str(told.get("name") or ""), whole_number(told, "partitions") or 1
        config = {key: str(value) for key, value in (told.get("config") or {}).items()}
        core = self.life.core
        await noted(core, CONTROL, "POST /topics", [name], core.topics.create(name, partitions, config))
        return {"name": name, "partitions": partitions}

    @_call("DELETE", f"/topics/{_NAME}")
    async def delete_topic(self, _told: Told, name: str) -> Any:
        core = self.life.core
        await noted(core, CONTROL, "DELETE /topics", [name], core.topics.delete(name))
        return {}

    def _log(self, topic: str) -> LogView:
        return LogView(lambda: self.life.core, topic, lambda: self.life.odd_logs)

    @_call("GET", f"/topics/{_NAME}/records", "partition", "offset")
    async def read_records(self, told: Told, name: str) -> Any:
        log, offset = self._log(name), whole_number(told, "offset") or 0
        partition = whole_number(told, "partition")
        numbers = list(log.end_offsets()) if partition is None else [partition]
        return [told_record(record, number) for number in numbers for record in await log.fetch(offset, partition=number)]

    @_call("POST", f"/topics/{_NAME}/records", "partition", "records")
    async def append_records(self, told: Told, name: str) -> Any:
        records = _records(told)
        result = await self.life.core.writer.append(TopicPartition(name, _partition(told)), records)
        return {"base_offset": result.base_offset, "count": len(records)}

    @_call("POST", f"/topics/{_NAME}/wait", "count", "partition", "timeout_ms")
    async def wait_records(self, told: Told, name: str) -> Any:
        partition, count = whole_number(told, "partition"), whole_number(told, "count") or 1
        await self._log(name).wait_for(count, partition=partition, timeout_s=_timeout_s(told))
        return await self.read_records(told, name)

    @_call("POST", f"/topics/{_NAME}/compact", "partition")
    async def compact(self, told: Told, name: str) -> Any:
        return {"rounds": await self._log(name).compact(whole_number(told, "partition"))}

    @_call("POST", f"/topics/{_NAME}/delete-records", "partition", "before_offset")
    async def delete_records(self, told: Told, name: str) -> Any:
        before = whole_number(told, "before_offset")
        start = await self._log(name).delete_records(-1 if before is None else before, partition=_partition(told))
        return {"start_offset": start}

    # ---- logs that no real broker would have -----------------------------------------------------------------------------

    @_call("POST", f"/topics/{_NAME}/skip-offsets", "partition", "count")
    async def skip_offsets(self, told: Told, name: str) -> Any:
        return {"next_offset": await self._log(name).skip_offsets(_count(told), partition=_partition(told))}

    @_call("POST", f"/topics/{_NAME}/empty-batch", "partition", "count")
    async def append_empty_batch(self, told: Told, name: str) -> Any:
        return {"base_offset": await self._log(name).append_empty_batch(_count(told), partition=_partition(told))}

    @_call("POST", f"/topics/{_NAME}/old-format", "partition", "records", "magic")
    async def append_old_format(self, told: Told, name: str) -> Any:
        records, magic = _records(told), whole_number(told, "magic")
        log = self._log(name)
        return {
            "base_offset": await log.append_old_format(
                records, magic=1 if magic is None else magic, partition=_partition(told)
            ),
            "count": len(records),
        }

    @_call("POST", f"/topics/{_NAME}/lose-offsets", "partition", "count")
    async def lose_offsets(self, told: Told, name: str) -> Any:
        return {"base_offset": await self._log(name).lose_offsets(_count(told), partition=_partition(told))}

    @_call("POST", f"/topics/{_NAME}/generate", "partition", "count", "value_bytes", "seed")
    async def generate(self, told: Told, name: str) -> Any:
        log, value_bytes = self._log(name), whole_number(told, "value_bytes")
        await log.generate(
            _count(told),
            value_bytes=100 if value_bytes is None else value_bytes,
            seed=whole_number(told, "seed") or 0,
            partition=whole_number(told, "partition"),
        )
        return {"end_offsets": log.end_offsets()}

    @_call("POST", f"/topics/{_NAME}/discard", "partition")
    async def discard(self, told: Told, name: str) -> Any:
        self._log(name).discard(whole_number(told, "partition"))
        return {}

    # ---- groups ----------------------------------------------------------------------------------------------------------

    @_call("POST", f"/groups/{_NAME}/commit", "topic", "partition", "offset")
    async def commit_offset(self, told: Told, name: str) -> Any:
        topic, offset = str(told.get("topic") or ""), whole_number(told, "offset")
        if offset is None:
            raise BadRequestError("offset is missing")
        await self.groups.commit(name, {TopicPartition(topic, _partition(told)): offset})
        return await self.describe_group({"topic": topic}, name)

    @_call("GET", f"/groups/{_NAME}", "topic")
    async def describe_group(self, told: Told, name: str) -> Any:
        topic = told.get("topic")
        committed, is_known = await self.groups.committed(name, topic), self.groups.is_known(name)
        return {
            "committed": [{**each._asdict(), "offset": offset} for each, offset in committed.items()],
            "lag": await self.groups.lag(name, topic) if is_known else None,
            "state": self.groups.state(name),
            "members": [_member(each) for each in self.groups.members(name)],
        }

    @_call("POST", f"/groups/{_NAME}/wait-assigned", "members", "timeout_ms")
    async def wait_assigned(self, told: Told, name: str) -> Any:
        await self.groups.wait_assigned(name, whole_number(told, "members") or 1, timeout_s=_timeout_s(told))
        return await self.describe_group(told, name)

    @_call("POST", f"/groups/{_NAME}/kick", "member_id")
    async def kick_member(self, told: Told, name: str) -> Any:
        await self.groups.kick(name, str(told.get("member_id") or ""))
        return {}

    @_call("POST", f"/groups/{_NAME}/rebalance")
    async def rebalance_group(self, _told: Told, name: str) -> Any:
        return self.groups.rebalance(name).fault.as_json()

    @_call("POST", f"/groups/{_NAME}/wait", "topic", "timeout_ms")
    async def wait_group(self, told: Told, name: str) -> Any:
        await self.groups.wait_no_lag(name, str(told.get("topic") or ""), timeout_s=_timeout_s(told))
        return await self.describe_group(told, name)

    @_call("POST", f"/groups/{_NAME}/freeze")
    async def freeze_group(self, _told: Told, name: str) -> Any:
        return self.groups.freeze(name).fault.as_json()

    @_call("GET", "/share-groups")
    async def list_share_groups(self, _told: Told) -> Any:
        return self.share_groups.groups()

    @_call("GET", f"/share-groups/{_NAME}", "topic")
    async def describe_share_group(self, told: Told, name: str) -> Any:
        return self.share_groups.as_json(name, told.get("topic"))

    @_call("POST", f"/share-groups/{_NAME}/wait", "topic", "timeout_ms")
    async def wait_share_group(self, told: Told, name: str) -> Any:
        await self.share_groups.wait_done(name, str(told.get("topic") or ""), timeout_s=_timeout_s(told))
        return await self.describe_share_group(told, name)

    @_call("GET", "/streams-groups")
    async def list_streams_groups(self, _told: Told) -> Any:
        return self.streams_groups.groups()

    @_call("GET", f"/streams-groups/{_NAME}")
    async def describe_streams_group(self, _told: Told, name: str) -> Any:
        return await self.streams_groups.as_json(name)

    @_call("POST", f"/streams-groups/{_NAME}/wait", "timeout_ms")
    async def wait_streams_group(self, told: Told, name: str) -> Any:
        await self.streams_groups.wait_done(name, timeout_s=_timeout_s(told))
        return await self.describe_streams_group(told, name)

    @_call("POST", f"/streams-groups/{_NAME}/wait-stable", "members", "timeout_ms")
    async def wait_streams_stable(self, told: Told, name: str) -> Any:
        members = whole_number(told, "members")
        await self.streams_groups.wait_stable(name, 1 if members is None else members, timeout_s=_timeout_s(told))
        return await self.describe_streams_group(told, name)

    @_call("POST", f"/streams-groups/{_NAME}/wait-status", "status", "timeout_ms")
    async def wait_streams_status(self, told: Told, name: str) -> Any:
        await self.streams_groups.wait_status(name, str(told.get("status") or ""), timeout_s=_timeout_s(told))
        return await self.describe_streams_group(told, name)

    # ---- nodes -----------------------------------------------------------------------------------------------------------

    @_call("POST", f"/nodes/{_NUMBER}/down")
    async def node_down(self, _told: Told, name: str) -> Any:
        await self.life.node_down(int(name))
        return {}

    @_call("POST", f"/nodes/{_NUMBER}/up")
    async def node_up(self, _told: Told, name: str) -> Any:
        await self.life.node_up(int(name))
        return {}

    @_call("POST", "/leaders", "topic", "partition", "node")
    async def move_leader(self, told: Told) -> Any:
        topic, partition = str(told.get("topic") or ""), whole_number(told, "partition") or 0
        return {"leader_epoch": await self.life.move_leader(topic, partition, whole_number(told, "node") or 0)}

    @_call("POST", "/coordinators", "name", "node")
    async def move_coordinator(self, told: Told) -> Any:
        self.life.move_coordinator(str(told.get("name") or ""), whole_number(told, "node") or 0)
        return {}

    @_call("POST", "/advertised", "address", "node")
    async def advertise(self, told: Told) -> Any:
        address = Address.parse(str(told.get("address") or ""))
        if not address.port:
            raise BadRequestError(f"address is {address}, expected the port that clients reach")
        self.life.advertise(address, whole_number(told, "node"))
        return await self.state(told)

    # ---- tokens of OAUTHBEARER -------------------------------------------------------------------------------------------

    @property
    def _tokens(self) -> TokenIssuer:
        if self.life.tokens is None:
            raise KeyError("issuer of tokens: sasl_enabled_mechanisms has no OAUTHBEARER, or other keys are configured")
        return self.life.tokens

    @_call("POST", "/tokens", "principal", "lifetime_s", "scope", "audience", "claims")
    async def issue_token(self, told: Told) -> Any:
        lifetime_s, claims = told.get("lifetime_s", LIFETIME_S), told.get("claims") or {}
        if isinstance(lifetime_s, bool) or not isinstance(lifetime_s, int | float) or not isinstance(claims, Mapping):
            raise BadRequestError("expected a number of lifetime_s, and an object of claims")
        scope, audience = told.get("scope"), told.get("audience")
        token = self._tokens.issue(_principal(told), lifetime_s=lifetime_s, scope=scope, audience=audience, claims=claims)
        return {"token": token}

    @_call("POST", TOKEN_PATH, "client_id", "client_secret", "grant_type", "scope", "audience")
    async def token_endpoint(self, told: Told) -> Any:
        """As an identity provider responds to the client credentials grant (RFC 6749, 4.4). Any secret is accepted."""
        if told.get("grant_type") != "client_credentials":
            raise BadRequestError(f"grant_type is {told.get('grant_type')!r}, expected client_credentials")
        named = {**told, "principal": told.get("client_id")}
        token = self._tokens.issue(_principal(named), scope=told.get("scope"), audience=told.get("audience"))
        return {"access_token": token, "token_type": "Bearer", "expires_in": round(LIFETIME_S)}

    @_call("GET", "/tokens/keys")
    async def token_keys(self, _told: Told) -> Any:
        return json.loads(self._tokens.jwks()) if self._tokens.has_keys else {"keys": []}

    @_call("GET", "/tokens/logins")
    async def token_logins(self, _told: Told) -> Any:
        return self._tokens.logins()

    @_call("POST", "/tokens/rotate-keys", "keep_old")
    async def rotate_token_keys(self, told: Told) -> Any:
        self._tokens.rotate_keys(keep_old=bool(yes_or_no(told, "keep_old")))
        return await self.token_keys(told)

    @_call("POST", "/tokens/refuse", "principal")
    async def refuse_tokens(self, told: Told) -> Any:
        self._tokens.refuse(_principal(told))
        return {}

    @_call("POST", "/tokens/accept", "principal")
    async def accept_tokens(self, told: Told) -> Any:
        self._tokens.accept(_principal(told))
        return {}

    # ---- clock and life --------------------------------------------------------------------------------------------------

    @_call("GET", "/")
    async def state(self, _told: Told) -> Any:
        addresses = {name: str(each) for name, each in attrs.asdict(self.life.addresses, recurse=False).items() if each}
        topics = list(self.life.core.topics.names()) if self.life.is_running else []
        counted = "connections accepted refused received_bytes sent_bytes"
        connections = {name: some(each, counted) for name, each in self.life.protocols.items()}
        life = {"is_running": self.life.is_running, "starts": self.life.starts}
        return {**life, **addresses, "nodes": _nodes(self.life), "topics": topics, "connections": connections}

    @_call("GET", "/clock")
    async def clock(self, _told: Told) -> Any:
        return {"now_ms": self.life.clock.now_ms(), "is_frozen": self.life.clock.frozen_ms is not None}

    @_call("POST", "/clock/advance", "seconds")
    async def advance_clock(self, told: Told) -> Any:
        seconds = told.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise BadRequestError(f"seconds is {seconds!r}, expected a number")
        self.life.clock.advance(seconds)
        return await self.clock(told)

    @_call("POST", "/clock/freeze")
    async def freeze_clock(self, told: Told) -> Any:
        self.life.clock.freeze()
        return await self.clock(told)

    @_call("POST", "/clock/unfreeze")
    async def unfreeze_clock(self, told: Told) -> Any:
        self.life.clock.unfreeze()
        return await self.clock(told)

    @_call("POST", "/crash")
    async def crash(self, told: Told) -> Any:
        await self.life.crash()
        return {**await self.state(told), "torn_files": self.life.torn_files}

    @_call("POST", "/stop")
    async def stop(self, told: Told) -> Any:
        await self.life.stop()
        return await self.state(told)

    @_call("POST", "/restart")
    async def restart(self, told: Told) -> Any:
        await self.life.restart()
        return await self.state(told)

    @_call("POST", "/reset")
    async def reset(self, told: Told) -> Any:
        gone = list(self.life.core.topics.names()) if self.life.is_running else []
        await self.life.reset(lambda core: noted(core, CONTROL, "POST /reset", gone, self.seed.put(core)))
        return await self.state(told)

    @_call("POST", "/retention")
    async def retention(self, _told: Told) -> Any:
        return {"segments": await self.life.core.logs.apply_retention()}

    @_call("POST", "/snapshot", "path")
    async def snapshot(self, told: Told) -> Any:
        if not isinstance(path := told.get("path"), str):
            raise BadRequestError("path is missing: give the folder for the copy")
        await self.life.snapshot(Path(path))
        return {"path": path}


# ---- rules: of requests, and of the device -----------------------------------------------------------------------------------


async def _add(api: ControlApi, told: Told, *, of: str) -> Any:
    add = api.faults.add_rule if of == FAULTS else api.faults.add_disk_rule
    return add(dict(told)).fault.as_json()


async def _list(api: ControlApi, _told: Told, *, of: str) -> Any:
    return [fault.as_json() for fault in api.rules(of)]


async def _clear(api: ControlApi, _told: Told, *, of: str) -> Any:
    api.rules(of).clear()
    return {}


async def _get(api: ControlApi, _told: Told, number: str, *, of: str) -> Any:
    return api.rules(of).get(int(number)).as_json()


async def _remove(api: ControlApi, _told: Told, number: str, *, of: str) -> Any:
    api.rules(of).remove(api.rules(of).get(int(number)).number)
    return {}


async def _release(api: ControlApi, told: Told, number: str, *, of: str) -> Any:
    api.rules(of).get(int(number)).release()
    return await _get(api, told, number, of=of)


async def _wait(api: ControlApi, told: Told, number: str, *, of: str) -> Any:
    times = whole_number(told, "times") or 1
    rules = api.rules(of)
    await FaultView(rules.get(int(number)), rules).wait_fired(times, timeout_s=_timeout_s(told))
    return await _get(api, told, number, of=of)


for _of in (FAULTS, DISK_FAULTS):
    ROUTES.extend(
        [
            Route("POST", _of, partial(_add, of=_of), None),
            Route("GET", _of, partial(_list, of=_of), ()),
            Route("DELETE", _of, partial(_clear, of=_of), ()),
            Route("GET", f"{_of}/{_NUMBER}", partial(_get, of=_of), ()),
            Route("DELETE", f"{_of}/{_NUMBER}", partial(_remove, of=_of), ()),
            Route("POST", f"{_of}/{_NUMBER}/release", partial(_release, of=_of), ()),
            Route("POST", f"{_of}/{_NUMBER}/wait", partial(_wait, of=_of), ("times", "timeout_ms")),
        ]
    )


# ---- values ------------------------------------------------------------------------------------------------------------------


def _nodes(life: Life) -> list[dict[str, Any]]:
    """Those of several that look like a cluster, up or down."""
    if life.nodes is None:
        return []
    down = life.nodes.down
    return [
        {"node": number, "address": f"{node.host}:{node.port}", "is_up": number not in down}
        for number, node in ((number, life.nodes.shown(number)) for number in life.nodes.addresses)
    ]


def _partition(told: Told) -> int:
    return whole_number(told, "partition") or 0


def _count(told: Told) -> int:
    count = whole_number(told, "count")
    return 1 if count is None else count


def _records(told: Told) -> list[PlainRecord]:
    said = told.get("records") or []
    if not isinstance(said, list):
        raise BadRequestError(f"records is {said!r}, expected a list")
    return [plain_record(each) for each in said]


def _principal(told: Told) -> str:
    principal = told.get("principal")
    if not isinstance(principal, str) or not principal:
        raise BadRequestError(f"principal is {principal!r}, expected the name of a user")
    return principal


def _form_as_json(request: HttpRequest) -> HttpRequest:
    """Return a request for a token with its form, and the client's name in the header `Authorization`, as a JSON object. A page
    can have a browser send a form, too, but then its Origin is beside it."""
    headers = request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        return request
    told = dict(parse_qsl(request.body.decode()))
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        told["client_id"] = unquote(base64.b64decode(encoded.strip(), validate=True).decode().partition(":")[0])
    return request._replace(headers={**headers, "content-type": JSON}, body=json.dumps(told).encode())


def _member(member: MemberView) -> dict[str, Any]:
    return {**member._asdict(), "partitions": [each._asdict() for each in member.partitions]}


def _wanted(told: Told) -> dict[str, Any]:
    """Behind a `?` everything is text."""
    wanted = {name: value for name, value in told.items() if name in WANTED}
    for name in _NUMBERS:
        if name in wanted:
            wanted[name] = whole_number(told, name)
    if "answered" in wanted:
        wanted["answered"] = yes_or_no(told, "answered")
    return wanted


def _timeout_s(told: Told) -> float:
    timeout_ms = whole_number(told, "timeout_ms")
    return PATIENCE_S if timeout_ms is None else timeout_ms / 1000


MAX_CONTROL_BODY_BYTES: Final = 64 * 2**20


async def answer(api: ControlApi, access: HttpAccess, request: HttpRequest) -> HttpAnswer:
    """Serve a request, if it needs a response."""
    if request.path == TOKEN_PATH:
        try:
            request = _form_as_json(request)
        except ValueError as exc:
            return _refusal(400, exc)
    if (refused := access.refusal(request)) is not None:
        return _refusal(refused.status, refused.body.decode().rstrip())._replace(headers=refused.headers)
    for route in ROUTES:
        found = re.fullmatch(route.pattern, request.path)
        if found is None or route.method != request.method:
            continue
        try:
            told = _told(request, route)
            return HttpAnswer.json(200, await route.handler(api, told, *map(unquote, found.groups())))
        except TimeoutError as exc:
            return _refusal(408, exc)
        except KeyError as exc:
            return _refusal(404, f"there is no {exc.args[0] if exc.args else exc}")
        except NotRunningError as exc:
            return _refusal(409, exc)
        except RequestError as exc:
            return HttpAnswer.json(422, {"error": exc.code.name, "message": exc.message})
        except (TriologError, ValueError, OverflowError, RecursionError, re.error, OSError) as exc:
            return _refusal(400, exc)
    return _refusal(404, f"{request.method} {request.path}: no such call")


def _told(request: HttpRequest, route: Route) -> Told:
    """Return the fields of a request, from its query and from the object in its body. Raises BadRequestError."""
    told: dict[str, Any] = dict(parse_qsl(request.query))
    if request.body:
        try:
            said = json.loads(request.body)
        except (ValueError, RecursionError) as exc:
            raise BadRequestError(f"the body is not JSON: {exc}") from None
        if not isinstance(said, Mapping):
            raise BadRequestError("the body is not an object")
        told |= said
    if route.fields is not None and (unknown := told.keys() - set(route.fields)):
        known = f"Use {', '.join(sorted(route.fields))}" if route.fields else "It takes no fields"
        raise BadRequestError(f"{request.method} {request.path}: {', '.join(sorted(unknown))}: no such field. {known}")
    return told


def _refusal(status: int, why: object) -> HttpAnswer:
    return HttpAnswer.json(status, {"message": str(why)})
