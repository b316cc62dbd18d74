"""A request is answered as far as the client may have it: `guard` has what is refused, `seen_answers` what is left out."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import Api
from .door import Call
from .error_answers import SHAPES, error_response, repeat
from .guard import EACH, WHOLE, Each
from .seen_answers import SEEN

MESSAGE: Final = "Authorization failed."
"""Kafka's words."""

Handler = Callable[[Call, Any], Any]


async def guarded(call: Call, api: Api, body: Any, handler: Handler) -> Any:
    """The answer to a request, as far as the client may have it."""
    for rule in WHOLE.get(api.key, ()):
        if (code := rule(call, body)) is not None:
            return error_response(api, call.version, body, code, MESSAGE)
    each = next((each for each in EACH.get(api.key, ()) if getattr(body, each.path)), None)
    answer = await _served(call, body, handler) if each is None else await _divided(call, api, body, each, handler)
    if (hide := SEEN.get(api.key)) is not None:
        hide(call, body, answer)
    return answer


async def _served(call: Call, body: Any, handler: Handler) -> Any:
    answer = handler(call, body)
    return await answer if inspect.isawaitable(answer) else answer


async def _divided(call: Call, api: Api, body: Any, each: Each, handler: Handler) -> Any:
    refused, kept = _judged(call, body, each)
    if not refused:
        return await _served(call, body, handler)
    answer = await _served(call, _with(body, each.path, kept), handler) if kept else api.response()
    if getattr(answer, "error_code", 0):
        return answer
    for code, elements in refused.items():
        for shape in SHAPES[api.key].lists:
            if shape.asked == each.path:
                asked = _with(body, each.path, elements)
                setattr(answer, shape.answer, getattr(answer, shape.answer) + repeat(shape, api.response, asked, code, MESSAGE))
    return answer


def _judged(call: Call, body: Any, each: Each) -> tuple[dict[ErrorCode, list[Any]], list[Any]]:
    """(what is refused, by the error; what is served)."""
    refused: dict[ErrorCode, list[Any]] = {}
    kept: list[Any] = []
    elements, once = getattr(body, each.path), each.once
    counts = Counter(map(once, elements)) if once is not None else None
    for element in elements:
        is_repeated = once is not None and counts is not None and counts[once(element)] > 1
        code = None if is_repeated else each.judge(call, body, element)
        (kept if code is None else refused.setdefault(code, [])).append(element)
    return refused, kept


def _with(body: Any, path: str, elements: list[Any]) -> Any:
    changed = copy.copy(body)
    setattr(changed, path, elements)
    return changed
