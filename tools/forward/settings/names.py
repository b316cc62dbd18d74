"""Selects the topics of a link, and names them upstream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ....protocol.errors import RequestError
from ....server.storage.disk.paths import check_topic_name, is_internal

FIELDS: Final = ("topic", "node", "link")
_FIELD: Final = re.compile(r"\{([^{}]*)\}")


def check_pattern(text: str) -> str:
    """A regular expression. Raises ValueError."""
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"{text!r} is no regular expression: {exc}") from exc
    return text


def check_target(text: str) -> str:
    """A template of names. Raises ValueError."""
    unknown = [name for name in _FIELD.findall(text) if name not in FIELDS]
    if unknown or re.search(r"[{}]", _FIELD.sub("", text)):
        raise ValueError(f"{text!r} may have {', '.join(f'{{{name}}}' for name in FIELDS)}, and nothing else in braces")
    return text


def target_name(template: str, **values: str) -> str:
    """Return the upstream name of a topic."""
    return _FIELD.sub(lambda match: values[match[1]], template)


def wanted_topics(names: Iterable[str], pattern: str | None, there: Iterable[str]) -> list[str]:
    """Those that are there and meant. A pattern means whole names, and no topic of the server's own."""
    named = set(names)
    matches = None if pattern is None else re.compile(pattern)
    return sorted(
        name for name in there if name in named or (matches is not None and not is_internal(name) and matches.fullmatch(name))
    )


def ranks(priority: Iterable[str], topics: Iterable[str]) -> Mapping[str, int]:
    """In which order topics go: the first of `priority` first, then all that it does not name."""
    order = list(priority)
    return {topic: order.index(topic) if topic in order else len(order) for topic in topics}


def topic_names(value: Any) -> tuple[str, ...]:
    """A list of topics, or a text with commas. Raises ValueError."""
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{value!r} is not a list of topics")
    for name in names:
        topic_name(name)
        if is_internal(name):
            raise ValueError(f"{name} has what a server keeps for itself; it cannot be forwarded")
    return tuple(dict.fromkeys(names))


def topic_name(value: Any) -> str:
    """The name of a topic. Raises ValueError."""
    try:
        check_topic_name(str(value))
    except RequestError as exc:
        raise ValueError(exc.message) from exc
    return str(value)
