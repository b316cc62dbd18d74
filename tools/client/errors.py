"""Errors that a client raises besides those in the server's responses.

Most are RequestErrors, so one `except` and `retriable` serve both.
"""

from __future__ import annotations

from typing import ClassVar

from ...protocol.errors import ErrorCode, RequestError, TriologError


class ConnectionLostError(RequestError):
    """The connection broke, or could not be made. Whether requests without an answer took effect is unknown."""

    default_code: ClassVar[ErrorCode] = ErrorCode.NETWORK_EXCEPTION


class BufferFullError(RequestError):
    """The producer's buffer stayed full for `max_block_ms`; the record was not taken."""

    default_code: ClassVar[ErrorCode] = ErrorCode.REQUEST_TIMED_OUT


class DeliveryTimedOutError(RequestError):
    """A record was not acknowledged within `delivery_timeout_ms`; if it was ever sent, it may still have been written."""

    default_code: ClassVar[ErrorCode] = ErrorCode.REQUEST_TIMED_OUT


class ClosedError(TriologError):
    """Used after it was closed, or closed before the record was acknowledged."""
