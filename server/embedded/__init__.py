"""A broker inside a program: `open_broker` for trio programs, `BlockingBroker` for all others. Its calls block the thread that
makes them: from asyncio make them with `asyncio.to_thread`.

Both have the same calls, go through the same `Broker` as the listener, and listen on a port of the system's choice unless told
otherwise, so that clients in other processes can join. Many can live in one process. Without a path the data lies in a
temporary directory that is removed at the end; `MEMORY` puts that directory into memory where the system has such a place.
"""

from .blocking import BlockingBroker as BlockingBroker
from .broker import EmbeddedBroker as EmbeddedBroker
from .living import LOCALHOST as LOCALHOST
from .living import MEMORY as MEMORY
from .opening import open_broker as open_broker
