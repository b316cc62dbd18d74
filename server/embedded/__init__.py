"""A broker inside a program: `opening.open` for trio, `aio.open` for asyncio, `blocking.open` for all others. `triolog.open`,
`triolog.aio.open` and `triolog.blocking.open` are the same functions.

All three have the same calls and go through the same `Broker` as a listener. A broker opens no TCP port unless requested. Many
brokers can run in one process. Without a path the data is in a temporary directory that is removed at the end; `MEMORY` puts it
into memory where the system has such a place.

Log lines go to the loggers below `triolog`; the program decides whether to show them.

A face is imported when it is used: a trio program does not load the proxies of the others. `open_broker` and `BlockingBroker`
are names of earlier releases.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ...protocol.platforms import check_platform

if TYPE_CHECKING:
    from ...protocol.errors import ExpectedOffsetError as ExpectedOffsetError
    from ..config.broker_config import Address as Address
    from ..fake.life import ForkedError as ForkedError
    from ..fake.life import NotRunningError as NotRunningError
    from .blocking import BlockingBroker as BlockingBroker
    from .broker import EmbeddedBroker as EmbeddedBroker
    from .living import LOCALHOST as LOCALHOST
    from .living import MEMORY as MEMORY
    from .opening import open_broker as open_broker
    from .options import OpenOptions as OpenOptions

_PLACES: Final = {
    "Address": "..config.broker_config",
    "BlockingBroker": ".blocking",
    "EmbeddedBroker": ".broker",
    "ExpectedOffsetError": "...protocol.errors",
    "ForkedError": "..fake.life",
    "LOCALHOST": ".living",
    "MEMORY": ".living",
    "NotRunningError": "..fake.life",
    "OpenOptions": ".options",
    "open_broker": ".opening",
}

check_platform()
import_module("...protocol.records.checksum", __name__)  # before the next line, so that its warning is seen in any program
logging.getLogger(__name__.partition(".")[0]).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a name on its first use. Raises AttributeError."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(_PLACES)
