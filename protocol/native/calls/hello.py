"""The calls that open a connection: `hello`, who speaks, and which calls and limits the server has; `authenticate`, with
which a user logs in by SASL, a token a call (RFC 4616, RFC 5802)."""

from __future__ import annotations

from typing import Any, Final

from ... import limits
from ..declaration import wire
from ..fields import describe_value, unexpected
from ..kinds import BINARY, BOOL, INT32, INT64, SECRET, Kind, integer, name, names, note
from ..structs import RequestMessage, ResponseMessage, struct

MAX_SOFTWARE_CHARS: Final = 255
SOFTWARE: Final = name(MAX_SOFTWARE_CHARS)
MAX_MECHANISM_CHARS: Final = 64
MECHANISM: Final = name(MAX_MECHANISM_CHARS)


def _read_apis(apis: dict[str, Any], key: str) -> dict[str, tuple[int, int]]:
    for api, versions in apis.items():
        if type(versions) is not list or [type(version) for version in versions] != [int, int]:
            raise unexpected(f"{key}[{describe_value(api)}]", versions, "[min: int, max: int]")
    return {api: (lowest, highest) for api, (lowest, highest) in apis.items()}


APIS: Final = Kind(expected="map", test="type({v}) is dict", read=_read_apis)


@struct
class HelloRequest(RequestMessage):
    """The first request of a connection. `client_id` names the client in logs and quotas, `software` its library."""

    api = "hello"

    client_id: str = wire(name(limits.MAX_CLIENT_ID_CHARS))
    software: str | None = wire(note(MAX_SOFTWARE_CHARS), default=None)


@struct
class HelloResponse(ResponseMessage):
    """The server, its calls as `{name: (min version, max version)}`, the limits a client keeps to, and how users log in; with
    no mechanisms nobody does."""

    api = "hello"

    server: str = wire(SOFTWARE)
    version: str = wire(SOFTWARE)
    node_id: int = wire(INT32)
    cluster_id: str = wire(SOFTWARE)
    apis: dict[str, tuple[int, int]] = wire(APIS)
    max_frame_bytes: int = wire(integer(1, limits.UINT32_MAX), default=limits.MAX_FRAME_BYTES)
    max_in_flight: int = wire(integer(1, limits.INT32_MAX), default=limits.MAX_IN_FLIGHT)
    sasl_mechanisms: tuple[str, ...] = wire(names(MAX_MECHANISM_CHARS), default=(), later=True)


@struct
class AuthenticateRequest(RequestMessage):
    """A token of the exchange that `mechanism` is; with another one it begins anew."""

    api = "authenticate"

    mechanism: str = wire(MECHANISM)
    data: bytes = wire(SECRET, shown=False)


@struct
class AuthenticateResponse(ResponseMessage):
    """The server's token. With `done` the user has logged in, for `session_lifetime_ms`, 0 for ever."""

    api = "authenticate"

    data: bytes = wire(BINARY, shown=False)
    done: bool = wire(BOOL)
    session_lifetime_ms: int = wire(INT64, default=0)
