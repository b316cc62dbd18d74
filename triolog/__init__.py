"""A log server in one Python process that stores logs the way Apache Kafka does.

`open` is a broker in a trio program, `open_or_join` one that several processes share, `connect` a client of a server.
`triolog.aio` and `triolog.blocking` have the same for asyncio and for programs without an event loop. Nothing is imported
before it is used.
"""

import sys

# Older Pythons read this far, from 3.6 on, which has no annotations from the future.
if sys.version_info < (3, 11):  # noqa: UP036
    raise ImportError(f"triolog needs Python 3.11 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]}")

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from . import aio, blocking
    from .protocol.errors import (
        ExpectedOffsetError,
        InvalidConfigError,
        OffsetOutOfRangeError,
        RequestError,
        TriologError,
        UnknownTopicOrPartitionError,
    )
    from .server.config.version import VERSION as __version__
    from .server.embedded.joining import open_or_join
    from .server.embedded.opening import open
    from .tools.client.connection import connect
    from .tools.client.errors import ClosedError, ConnectionLostError

__all__ = [
    "ClosedError",
    "ConnectionLostError",
    "ExpectedOffsetError",
    "InvalidConfigError",
    "OffsetOutOfRangeError",
    "RequestError",
    "TriologError",
    "UnknownTopicOrPartitionError",
    "__version__",
    "aio",
    "blocking",
    "connect",
    "open",
    "open_or_join",
]

_PLACES: Final = {
    "ClosedError": "tools.client.errors",
    "ConnectionLostError": "tools.client.errors",
    "__version__": "server.config.version:VERSION",
    "aio": "aio:",
    "blocking": "blocking:",
    "connect": "tools.client.connection",
    "open": "server.embedded.opening",
    "open_or_join": "server.embedded.joining",
}
"""Module and name of what is imported late; errors are in `protocol.errors`."""


def __getattr__(name: str) -> Any:
    """Import what is used, once. Raises AttributeError."""
    if name not in __all__:
        raise AttributeError(f"module 'triolog' has no attribute {name!r}")
    module, has_name, attribute = _PLACES.get(name, "protocol.errors").partition(":")
    found = import_module(f".{module}", __name__)
    value = globals()[name] = found if has_name and not attribute else getattr(found, attribute or name)
    return value


def __dir__() -> list[str]:
    return __all__
