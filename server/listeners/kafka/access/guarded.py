"""A request is answered as far as the client may have it: `guard` has what is refused, `seen_answers` what is left out."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from types import GeneratorType
from typing import Any, Final

from .....protocol.errors import AuthorizationError, ErrorCode
from .....protocol.kafka.apis import Api, ApiTable, lists_naming, names_of
from .....protocol.kafka.authorization import DENIED
from ....loop.procedures import perform
from ...access.judging import Steps, divide_steps, each_steps
from ...access.rules import Denied, check_steps
from ..door import Call
from ..error_answers import SHAPES, error_response_steps, repeat_steps
from .guard import RULES, Each, Rules

MESSAGE: Final = "Authorization failed."
"""Kafka's words."""

NO_RULES: Final = Rules()


def _paths(api: Api) -> tuple[str, ...]:
    each = RULES.get(api.key, NO_RULES).each
    if each is None:
        return ()
    paths = tuple(path for path, _ in lists_naming(api, api.request, (each.entity,)))
    assert paths, f"{api.name} has no list of {each.entity.name}"
    return paths


PATHS: Final = ApiTable(_paths)
"""The lists whose elements are judged. A request has one of them, or none."""

Handler = Callable[[Call, Any], Any]


async def served(call: Call, body: Any, handler: Handler) -> Any:
    """Return the answer of a handler of any kind."""
    answer = handler(call, body)
    if answer.__class__ is GeneratorType:
        return await perform(answer)
    return await answer if isinstance(answer, Awaitable) else answer


async def guarded(call: Call, api: Api, body: Any, handler: Handler) -> Any:
    """Answer a request under ACLs: refuse it, serve the elements that are allowed, hide what the client may not see."""
    rules, in_steps = RULES.get(api.key, NO_RULES), call.broker.in_steps
    try:
        await in_steps(check_steps(call, body, rules))
    except AuthorizationError as exc:
        return await in_steps(error_response_steps(api, call.version, body, exc.code, MESSAGE))
    path = next((path for path in PATHS[api.key] if getattr(body, path)), None)
    if rules.each is None or path is None:
        answer = await served(call, body, handler)
    else:
        answer = await _divided(call, api, body, rules.each, path, handler)
    if rules.hide is not None:
        await in_steps(rules.hide(call, body, answer))
    return answer


async def _divided(call: Call, api: Api, body: Any, each: Each, path: str, handler: Handler) -> Any:
    in_steps = call.broker.in_steps
    kept, refused = await in_steps(_judge_steps(call, body, each, getattr(body, path)))
    if not refused:
        return await served(call, body, handler)
    answer = await served(call, _with(body, path, kept), handler) if kept or each.is_of_group else api.response()
    if getattr(answer, "error_code", 0):
        return answer
    for code, elements in refused.items():
        for shape in SHAPES[api.key].lists:
            if shape.asked == path:
                asked = _with(body, path, elements)
                repeated = await in_steps(repeat_steps(shape, api.response, asked, code, MESSAGE))
                setattr(answer, shape.answer, getattr(answer, shape.answer) + repeated)
    return answer


def _judge_steps(call: Call, body: Any, each: Each, elements: list[Any]) -> Steps[tuple[list[Any], dict[ErrorCode, list[Any]]]]:
    """(elements that are served, error -> those refused with it)."""
    counts: Counter[Hashable] = Counter()
    if each.once:
        yield from each_steps(elements, lambda element: counts.update((_identity(element),)))

    def refusal(element: Any) -> Denied:
        return None if each.once and counts[_identity(element)] > 1 else each.denied(call, body, element)

    kept, found = yield from divide_steps(elements, refusal)
    refused: dict[ErrorCode, list[Any]] = {}
    yield from each_steps(found, lambda one: refused.setdefault(DENIED[one[2]], []).append(one[1]))
    return kept, refused


def _identity(element: Any) -> Hashable:
    """A key for what an element names; equal for two elements that name the same."""
    return element if isinstance(element, str) else tuple(getattr(element, name) for name in names_of(type(element)).values())


def _with(body: Any, path: str, elements: list[Any]) -> Any:
    changed = copy.copy(body)
    setattr(changed, path, elements)
    return changed
