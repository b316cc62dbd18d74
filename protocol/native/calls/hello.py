"""The call `hello`: who speaks, and which calls and limits the server has."""

from __future__ import annotations

from typing import Any, Final

from ... import limits
from ..declaration import wire
from ..fields import describe_value, unexpected
from ..kinds import INT32, Kind, integer, name, note
from ..structs import RequestMessage, ResponseMessage, struct

MAX_SOFTWARE_CHARS: Final = 255
SOFTWARE: Final = name(MAX_SOFTWARE_CHARS)


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
    """The server, its calls as `{name: (min version, max version)}`, and the limits a client keeps to."""

    api = "hello"

    server: str = wire(SOFTWARE)
    version: str = wire(SOFTWARE)
    node_id: int = wire(INT32)
    cluster_id: str = wire(SOFTWARE)
    apis: dict[str, tuple[int, int]] = wire(APIS)
    max_frame_bytes: int = wire(integer(1, limits.UINT32_MAX), default=limits.MAX_FRAME_BYTES)
    max_in_flight: int = wire(integer(1, limits.INT32_MAX), default=limits.MAX_IN_FLIGHT)
