"""Opens the listener of the registry. Everything that a request needs is loaded here: most brokers have no registry."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from ...protocol.errors import InvalidConfigError
from ...protocol.extras import how_to_install
from ..broker import Broker
from ..config.values import Address

NEEDED: Final = ("avro", "google.protobuf", "h11")


def check_extra() -> None:
    """Raises InvalidConfigError if a package of the extra is missing."""
    missing = [name for name in NEEDED if not _is_installed(name)]
    if missing:
        raise InvalidConfigError(f"the schema registry needs {' and '.join(missing)}: {how_to_install('registry')}")


def _is_installed(name: str) -> bool:
    package = name.partition(".")[0]
    return importlib.util.find_spec(package) is not None and importlib.util.find_spec(name) is not None


async def serve_registry(
    address: Address, find_broker: Callable[[], Broker | None], *, task_status: trio.TaskStatus[Address]
) -> None:
    """Serve until cancelled; the status is the address. `find_broker` returns the running broker, None while there is none.
    Raises InvalidConfigError, OSError."""
    check_extra()
    from ..listeners.http.access import HttpAccess
    from ..listeners.http.server import http_listener
    from .formats import avro, json_schema, protobuf  # noqa: F401 - before the first request, while files can be opened
    from .registry import Registry
    from .rest import MAX_BODY_BYTES, MEDIA_TYPES, RestApi, body_too_large
    from .topic import SchemasTopic

    access = attrs.evolve(HttpAccess.of(address), more_types=MEDIA_TYPES)
    api = RestApi(Registry(SchemasTopic(find_broker)), access)
    await http_listener(address, api.answer, max_body_bytes=MAX_BODY_BYTES, too_large=body_too_large()).run(
        task_status=task_status
    )


@asynccontextmanager
async def registry_of(address: Address, find_broker: Callable[[], Broker | None]) -> AsyncIterator[Address]:
    """Serve for the time of the block; the value is the real address. Raises InvalidConfigError, OSError, or a group with
    one."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve_registry, address, find_broker)
        nursery.cancel_scope.cancel()
