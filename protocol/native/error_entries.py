"""The error entry of the native protocol, `[code, name, message]`, and the exception it stands for."""

from __future__ import annotations

from typing import Final

from .. import errors
from ..errors import ErrorCode, RequestError
from . import fields

ErrorEntry = tuple[int, str, str]

_CLASSES: Final[dict[ErrorCode, type[RequestError]]] = {
    error_class.default_code: error_class
    for error_class in vars(errors).values()
    if isinstance(error_class, type)
    and issubclass(error_class, RequestError)
    and error_class is not RequestError
    and "default_code" in vars(error_class)  # others say more than an entry holds
}
_NAMES: Final = {code.value: code.name for code in ErrorCode}


def encode_error(error: RequestError | None) -> ErrorEntry | None:
    """What stands under `error` for this exception; None for none."""
    if error is None:
        return None
    code = int(error.code)
    return code, _NAMES[code], error.message


def decode_error(entry: object, where: str = "error") -> RequestError | None:
    """The exception an entry stands for, of the class that has this code.

    A code that this version does not know becomes UNKNOWN_SERVER_ERROR with the server's code and name in its message.
    """
    if entry is None:
        return None
    if not (type(entry) is list and [type(part) for part in entry] == [int, str, str]):
        raise fields.unexpected(where, entry, "nil or [code: int, name: str, message: str]")
    code, name, message = entry
    try:
        known = ErrorCode(code)
    except ValueError:
        return RequestError(f"{message} (error {code} {name}, unknown to this client)")
    return _CLASSES.get(known, RequestError)(message, known)
