"""The options of a SQL session, the formats of topic values, and the error for a failed query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import attrs

from ...protocol.errors import TriologError
from ...protocol.types import Isolation
from ..arrow.reading import SAMPLE
from ..arrow.sources import ReadOptions

if TYPE_CHECKING:
    from ..client.login import LoginConfig
    from ..client.tls import TlsConfig
    from ..schemas.registry_values import RegistryValues


_DETAIL: Final = (" Detail: Python exception", " LINE 1:", "\n\nLINE ")


class SqlError(TriologError):
    """SQL that fails, a topic or an option that makes no sense."""


def one_line(error: Exception) -> str:
    """DuckDB's message without the copy of the question and the stack that it may hold."""
    text = str(error)
    for mark in _DETAIL:
        text = text.partition(mark)[0]
    return " ".join(text.split())


KINDS: Final = ("auto", "json", "msgpack", "avro", "registry", "raw")


@attrs.frozen(kw_only=True)
class SqlOptions:
    """`values` and `schemas` are by topic, the one of None is for all others.

    A schema is SQL, `carrier VARCHAR, arr_delay BIGINT`, and for Avro the text that the values were written with. Without one
    the first values tell; `auto` is JSON when they are objects, else raw. With a `registry`, `auto` is `registry` for a topic
    whose values begin with the id of a schema.
    """

    values: Mapping[str | None, str] = attrs.field(factory=dict)
    schemas: Mapping[str | None, str] = attrs.field(factory=dict)
    registry: RegistryValues | None = None
    """Decodes values of the kind `registry`."""
    errors: Literal["raise", "null"] = "raise"
    sample: int = SAMPLE
    isolation: Isolation = Isolation.READ_COMMITTED
    login: LoginConfig | None = None
    tls: TlsConfig | None = None
    time_zone: str | None = None
    """Of DuckDB's session; None is the system's."""
    memory_limit: str | None = "1GB"
    """Of DuckDB, which writes to a temporary directory what does not fit."""

    def of_topic(self, topic: str) -> tuple[str, str | None]:
        """The kind of its values, and its schema if one is given."""
        schema = self.schemas.get(topic, self.schemas.get(None))
        kind = self.values.get(topic, self.values.get(None, "auto"))
        if kind == "auto" and schema is not None:
            kind = "json" if self.registry is None else "registry"
        return kind, schema

    def reading(self) -> ReadOptions:
        return ReadOptions(isolation=self.isolation, login=self.login, tls=self.tls)
