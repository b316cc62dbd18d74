"""The control of a broker over HTTP and JSON, for tests in any language. Never on by default: whoever reaches the port, and has
its token where there is one, can do everything to the data.

`ROUTES` has every call with the fields that it takes, in the body's object or behind the `?`; docs/testing-with-triolog.md says
what they do. Answers are JSON. 400: what was sent means nothing; 404: there is no such thing; 408: it did not come in time;
409: the broker is down; 413: the body is too large; 422: the broker refuses, with Kafka's `error`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from ...protocol.errors import RequestError, TriologError
from ..listeners.http.access import HttpAccess
from ..listeners.http.server import HttpAnswer, HttpRequest
from .api import WANTED, ControlApi, Told
from .life import NotRunningError
from .values import BadRequestError

MAX_CONTROL_BODY_BYTES: Final = 64 * 2**20

Handler = Callable[[ControlApi, list[str], Told], Awaitable[Any]]


class Route(NamedTuple):
    """One call. `fields` None: the handler looks at what is sent."""

    method: str
    pattern: str
    handler: Handler
    fields: Collection[str] | None


_NAME: Final = "([^/]+)"
_NUMBER: Final = "([0-9]+)"
_ANY: Final = None
ASKED: Final = tuple(sorted(WANTED))

ROUTES: Final = (
    Route("GET", "/", ControlApi.state, ()),
    Route("POST", "/faults", ControlApi.add_fault, _ANY),
    Route("GET", "/faults", ControlApi.list_faults, ()),
    Route("DELETE", "/faults", ControlApi.clear_faults, ()),
    Route("GET", f"/faults/{_NUMBER}", ControlApi.get_fault, ()),
    Route("DELETE", f"/faults/{_NUMBER}", ControlApi.remove_fault, ()),
    Route("POST", f"/faults/{_NUMBER}/release", ControlApi.release_fault, ()),
    Route("POST", f"/faults/{_NUMBER}/wait", ControlApi.wait_fault, ("times", "timeout_ms")),
    Route("POST", "/disk-faults", ControlApi.add_disk_fault, _ANY),
    Route("GET", "/disk-faults", ControlApi.list_disk_faults, ()),
    Route("DELETE", "/disk-faults", ControlApi.clear_disk_faults, ()),
    Route("GET", f"/disk-faults/{_NUMBER}", ControlApi.get_disk_fault, ()),
    Route("DELETE", f"/disk-faults/{_NUMBER}", ControlApi.remove_disk_fault, ()),
    Route("POST", f"/disk-faults/{_NUMBER}/release", ControlApi.release_disk_fault, ()),
    Route("POST", f"/disk-faults/{_NUMBER}/wait", ControlApi.wait_disk_fault, ("times", "timeout_ms")),
    Route("GET", "/requests", ControlApi.list_requests, (*ASKED, "last")),
    Route("DELETE", "/requests", ControlApi.clear_requests, ()),
    Route("POST", "/requests/wait", ControlApi.wait_requests, (*ASKED, "count", "timeout_ms")),
    Route("GET", "/topics", ControlApi.list_topics, ()),
    Route("POST", "/topics", ControlApi.create_topic, ("name", "partitions", "config")),
    Route("DELETE", f"/topics/{_NAME}", ControlApi.delete_topic, ()),
    Route("GET", f"/topics/{_NAME}/records", ControlApi.read_records, ("partition", "offset")),
    Route("POST", f"/topics/{_NAME}/records", ControlApi.append_records, ("partition", "records")),
    Route("POST", f"/topics/{_NAME}/wait", ControlApi.wait_records, ("count", "partition", "timeout_ms")),
    Route("POST", f"/topics/{_NAME}/compact", ControlApi.compact, ("partition",)),
    Route("GET", f"/groups/{_NAME}", ControlApi.describe_group, ("topic",)),
    Route("POST", f"/groups/{_NAME}/wait", ControlApi.wait_group, ("topic", "timeout_ms")),
    Route("POST", f"/groups/{_NAME}/wait-assigned", ControlApi.wait_assigned, ("members", "timeout_ms")),
    Route("POST", f"/groups/{_NAME}/kick", ControlApi.kick_member, ("member_id",)),
    Route("POST", f"/groups/{_NAME}/rebalance", ControlApi.rebalance_group, ()),
    Route("POST", f"/groups/{_NAME}/freeze", ControlApi.freeze_group, ()),
    Route("GET", "/share-groups", ControlApi.list_share_groups, ()),
    Route("GET", f"/share-groups/{_NAME}", ControlApi.describe_share_group, ("topic",)),
    Route("POST", f"/share-groups/{_NAME}/wait", ControlApi.wait_share_group, ("topic", "timeout_ms")),
    Route("GET", "/streams-groups", ControlApi.list_streams_groups, ()),
    Route("GET", f"/streams-groups/{_NAME}", ControlApi.describe_streams_group, ()),
    Route("POST", f"/streams-groups/{_NAME}/wait", ControlApi.wait_streams_group, ("timeout_ms",)),
    Route("POST", f"/streams-groups/{_NAME}/wait-stable", ControlApi.wait_streams_stable, ("members", "timeout_ms")),
    Route("POST", f"/streams-groups/{_NAME}/wait-status", ControlApi.wait_streams_status, ("status", "timeout_ms")),
    Route("GET", "/clock", ControlApi.clock, ()),
    Route("POST", "/clock/advance", ControlApi.advance_clock, ("seconds",)),
    Route("POST", "/clock/freeze", ControlApi.freeze_clock, ()),
    Route("POST", "/clock/unfreeze", ControlApi.unfreeze_clock, ()),
    Route("POST", f"/nodes/{_NUMBER}/down", ControlApi.node_down, ()),
    Route("POST", f"/nodes/{_NUMBER}/up", ControlApi.node_up, ()),
    Route("POST", "/leaders", ControlApi.move_leader, ("topic", "partition", "node")),
    Route("POST", "/coordinators", ControlApi.move_coordinator, ("name", "node")),
    Route("POST", "/crash", ControlApi.crash, ()),
    Route("POST", "/stop", ControlApi.stop, ()),
    Route("POST", "/restart", ControlApi.restart, ()),
    Route("POST", "/reset", ControlApi.reset, ()),
    Route("POST", "/retention", ControlApi.retention, ()),
    Route("POST", "/snapshot", ControlApi.snapshot, ("path",)),
)


async def answer(api: ControlApi, access: HttpAccess, request: HttpRequest) -> HttpAnswer:
    """Do what a request asks for, if it is one that is answered."""
    if (refused := access.refusal(request)) is not None:
        return _refusal(refused.status, refused.body.decode().rstrip())._replace(headers=refused.headers)
    for route in ROUTES:
        found = re.fullmatch(route.pattern, request.path)
        if found is None or route.method != request.method:
            continue
        try:
            told = _told(request, route)
            return HttpAnswer.json(200, await route.handler(api, [unquote(part) for part in found.groups()], told))
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
    return _refusal(404, f"{request.method} {request.path}: there is no such call")


def _told(request: HttpRequest, route: Route) -> Told:
    """What comes with a request: the fields of its question, or of the object in its body. Raises BadRequestError."""
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
        known = f"there are {', '.join(sorted(route.fields))}" if route.fields else "there is none"
        raise BadRequestError(f"{request.method} {request.path}: {', '.join(sorted(unknown))}: no such field; {known}")
    return told


def _refusal(status: int, why: object) -> HttpAnswer:
    return HttpAnswer.json(status, {"message": str(why)})
