"""The call `hello`: who speaks, and which calls and limits the server has."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from .. import limits
from . import fields
from .fields import Body

MAX_SOFTWARE_CHARS: Final = 255


@attrs.frozen
class HelloRequest:
    """The first request of a connection. `client_id` names the client in logs and quotas, `software` its library."""

    api: ClassVar[str] = "hello"
    keys: ClassVar[frozenset[str]] = fields.names("client_id", "software")

    client_id: str
    software: str | None = None

    @classmethod
    def from_body(cls, body: Body) -> HelloRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(
            fields.string(body, "client_id", limits.MAX_CLIENT_ID_CHARS),
            fields.optional_string(body, "software", MAX_SOFTWARE_CHARS),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"client_id": self.client_id, "software": self.software}


@attrs.frozen
class HelloResponse:
    """The server, its calls as `{name: (min version, max version)}`, and the limits a client keeps to."""

    api: ClassVar[str] = "hello"

    server: str
    version: str
    node_id: int
    cluster_id: str
    apis: dict[str, tuple[int, int]]
    max_frame_bytes: int = limits.MAX_FRAME_BYTES
    max_in_flight: int = limits.MAX_IN_FLIGHT

    @classmethod
    def from_body(cls, body: Body) -> HelloResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        apis = fields.map_at(body, "apis")
        for name, versions in apis.items():
            if type(versions) is not list or [type(version) for version in versions] != [int, int]:
                raise fields.unexpected(f"apis[{fields.describe(name)}]", versions, "[min: int, max: int]")
        return cls(
            fields.string(body, "server", MAX_SOFTWARE_CHARS),
            fields.string(body, "version", MAX_SOFTWARE_CHARS),
            fields.int32(body, "node_id"),
            fields.string(body, "cluster_id", MAX_SOFTWARE_CHARS),
            {name: (versions[0], versions[1]) for name, versions in apis.items()},
            fields.integer(body, "max_frame_bytes", 1, 2**32 - 1),
            fields.int32(body, "max_in_flight", 1),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "server": self.server,
            "version": self.version,
            "node_id": self.node_id,
            "cluster_id": self.cluster_id,
            "apis": {name: list(versions) for name, versions in self.apis.items()},
            "max_frame_bytes": self.max_frame_bytes,
            "max_in_flight": self.max_in_flight,
        }
