"""How much the server says in its log."""

from __future__ import annotations

import enum
from typing import Final

DEFAULT_LINES_PER_MINUTE: Final = 100
"""Of one kind: what 100 connections that fail in the same way have to say, and 20 MB a day if that goes on."""


class LogLevel(enum.Enum):
    """The least important lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
