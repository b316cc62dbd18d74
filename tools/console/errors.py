"""Error responses of the console: `{"error": {"code", "name", "message"}}`, and a status.

`name` and `code` are Kafka's for errors of the server; the console's own errors have no code.
"""

from __future__ import annotations

from typing import Any, Final

from ...protocol.errors import ErrorCode, RequestError, SaslAuthenticationError
from ..client.errors import ConnectionLostError

NOT_FOUND: Final = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "GROUP_ID_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND"})
UNPROCESSABLE: Final = 422


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, name: str, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message
        self.code = code

    def to_json(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "name": self.name, "message": self.message}}


class BadParameterError(ApiError):
    """A parameter that means nothing. The message names it."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(400, "BAD_PARAMETER", f"{parameter}: {message}")


def login_required() -> ApiError:
    """Nobody has logged in, and the server wants somebody."""
    return ApiError(401, "LOGIN_REQUIRED", "the server requires a login")


def of_server(error: RequestError) -> ApiError:
    """Convert an error of the server, or of the connection to it, into an ApiError."""
    return ApiError(_status(error), error.code.name, error.message, int(error.code))


def _status(error: RequestError) -> int:
    if isinstance(error, ConnectionLostError):
        return 503
    if isinstance(error, SaslAuthenticationError):
        return 401
    name = error.code.name
    if name in NOT_FOUND:
        return 404
    if name.endswith("_AUTHORIZATION_FAILED"):
        return 403
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return 504
    return 400 if name.startswith("INVALID_") else UNPROCESSABLE
