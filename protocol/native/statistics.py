"""The call `statistics`: what a server has counted since its start, for people and programs that watch it."""

from __future__ import annotations

from typing import ClassVar

import attrs

from . import fields
from .fields import Body


@attrs.frozen
class StatisticsRequest:
    """Everything, as it is now."""

    api: ClassVar[str] = "statistics"
    keys: ClassVar[frozenset[str]] = fields.names()

    @classmethod
    def from_body(cls, body: Body) -> StatisticsRequest:
        """Nothing is in it."""
        return cls()

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {}


@attrs.frozen
class StatisticsResponse:
    """The map that docs/native-protocol.md lists. It is handed through: a newer server may say more, an older one less."""

    api: ClassVar[str] = "statistics"

    statistics: Body

    @classmethod
    def from_body(cls, body: Body) -> StatisticsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(dict(fields.map_at(body, "statistics")))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"statistics": self.statistics}
