"""A broker inside a program: `open_broker` for trio programs, `aio.open_broker` for those of asyncio, `BlockingBroker` for all
others.

All three have the same calls, go through the same `Broker` as the listener, and listen on a port of the system's choice unless
told otherwise, so that clients in other processes can join. Many can live in one process. Without a path the data lies in a
temporary directory that is removed at the end; `MEMORY` puts that directory into memory where the system has such a place.

What a broker has to say goes to the loggers below `triolog`; nothing of it is shown unless the program wants it.
"""

import logging

from ...protocol.errors import ExpectedOffsetError as ExpectedOffsetError
from ..config.broker_config import Address as Address
from ..fake.life import ForkedError as ForkedError
from ..fake.life import NotRunningError as NotRunningError
from .blocking import BlockingBroker as BlockingBroker
from .broker import EmbeddedBroker as EmbeddedBroker
from .living import LOCALHOST as LOCALHOST
from .living import MEMORY as MEMORY
from .opening import open_broker as open_broker

logging.getLogger(__name__.partition(".")[0]).addHandler(logging.NullHandler())
