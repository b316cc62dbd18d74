"""Calls of a topic's view under the names of earlier releases, for the views of all faces."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from ....protocol.former import warn_former
from ....protocol.types import AppendResult


class View(Protocol):
    """A topic's view of any face."""

    @property
    def append(self) -> Any: ...
    @property
    def fetch(self) -> Any: ...


class FormerLogCalls:
    """They return what `append` and `fetch` of the face return, or an awaitable of it."""

    __slots__ = ()

    def records(self: View, partition: int | None = None, *, offset: int = 0, committed_only: bool = True) -> Any:
        """Use `fetch`."""
        warn_former("log.records()", "log.fetch()")
        return self.fetch(offset, partition=partition, committed_only=committed_only)

    def produce(
        self: View,
        value: str | bytes | None = None,
        *,
        key: str | bytes | None = None,
        headers: Any = (),
        timestamp_ms: int | None = None,
        partition: int = 0,
    ) -> Any:
        """Use `append`, which returns more than the offset."""
        warn_former("log.produce(value)", "log.append([value])")
        return _base_offset(self.append([value], key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition))

    def produce_all(self: View, values: Sequence[str | bytes | None], *, partition: int = 0) -> Any:
        """Use `append`, which returns more than the offset."""
        warn_former("log.produce_all(values)", "log.append(values)")
        return _base_offset(self.append(values, partition=partition))


def _base_offset(found: AppendResult | Awaitable[AppendResult]) -> Any:
    return _awaited(found) if inspect.isawaitable(found) else found.base_offset


async def _awaited(found: Awaitable[AppendResult]) -> int:
    return (await found).base_offset
