"""Appends one by one, for blocking programs that decide by what they have read; see `Appender`."""

from __future__ import annotations

from typing import Unpack

from ..appender import Appender
from ..config import ProducerConfig
from ..options import ProducerOptions
from .client import BlockingClient
from .in_place import blocking


class BlockingAppender:
    """Appends over a client, as `Appender`. Owner: one thread, the client's."""

    def __init__(
        self, client: BlockingClient, config: ProducerConfig | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        self._shared = Appender(client, config, **options)

    append = blocking(Appender.append)
