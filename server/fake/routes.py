"""The control of a broker over HTTP and JSON, for tests in any language. Never on by default: whoever reaches the port, and has
its token where there is one, can do everything to the data.

`api` has every call with the fields that it takes, in the body's object or behind the `?`; docs/testing-with-triolog.md says
what they do. Answers are JSON. 400: what was sent means nothing; 404: there is no such thing; 408: it did not come in time;
409: the broker is down; 413: the body is too large; 422: the broker refuses, with Kafka's `error`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from ...protocol.errors import RequestError, TriologError
from ..listeners.http.access import HttpAccess
from ..listeners.http.server import HttpAnswer, HttpRequest
from .api import ROUTES, ControlApi, Route, Told
from .life import NotRunningError
from .values import BadRequestError

MAX_CONTROL_BODY_BYTES: Final = 64 * 2**20


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
    return _refusal(404, f"{request.method} {request.path}: there is no such call")


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
        known = f"there are {', '.join(sorted(route.fields))}" if route.fields else "there is none"
        raise BadRequestError(f"{request.method} {request.path}: {', '.join(sorted(unknown))}: no such field; {known}")
    return told


def _refusal(status: int, why: object) -> HttpAnswer:
    return HttpAnswer.json(status, {"message": str(why)})
