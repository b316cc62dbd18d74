"""Changes that nobody asks a listener for: those of the program that a broker is embedded in, and of who controls a server for
tests."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

from ...protocol.errors import RequestError
from ..broker import Broker

T = TypeVar("T")

EMBEDDED: Final = "embedded"
CONTROL: Final = "control"


async def noted(broker: Broker, door: str, api: str, names: Iterable[str], change: Awaitable[T]) -> T:
    """Have a change made, and noted in the audit log where there is one, with what became of it. Values are not among the
    names."""
    try:
        result = await change
    except RequestError as exc:
        _note(broker, door, api, names, [exc.code.name])
        raise
    _note(broker, door, api, names, [])
    return result


def _note(broker: Broker, door: str, api: str, names: Iterable[str], errors: list[str]) -> None:
    if (audit := broker.security.audit) is not None:
        nobody = {"principal": None, "host": None, "client_id": None}
        audit.note("change", **nobody, protocol=door, api=api, names=list(names), errors=errors)
