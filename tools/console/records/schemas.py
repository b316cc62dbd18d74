"""Keys and values that begin with the id of a schema, as the JSON that a schema registry decodes.

Schemas are read in a thread before records are shown, so that showing one never waits. A registry that fails is asked again
after some seconds, and meanwhile such values stay bytes, with the reason beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import attrs
import trio

from ...schemas.registry_values import RegistryValues, SchemaError, schema_id_of

RETRY_S: Final = 10.0
MAX_NEW_SCHEMAS: Final = 50
"""Schemas that one batch of records may request."""


@attrs.define(eq=False, repr=False)
class Schemas:
    """Owner: the console."""

    _registry: RegistryValues
    _loaded: set[int] = attrs.field(factory=set)
    _failed: dict[int, tuple[float, str]] = attrs.field(factory=dict)
    """By id: when it failed, in trio's time, and why."""

    async def prepare(self, records: Iterable[Any]) -> None:
        """Read the schemas of these records that are not known yet."""
        ids = {schema_id_of(data) for record in records for data in (record.key, record.value)} - {None} - self._loaded
        due = trio.current_time() - RETRY_S
        for schema_id in islice(
            (each for each in ids if each not in self._failed or self._failed[each][0] < due), MAX_NEW_SCHEMAS
        ):
            assert schema_id is not None
            try:
                await trio.to_thread.run_sync(self._registry.load, schema_id)
            except SchemaError as exc:
                self._failed[schema_id] = trio.current_time(), str(exc)
            else:
                self._loaded.add(schema_id)
                self._failed.pop(schema_id, None)

    def shown(self, data: bytes, *, is_indented: bool) -> tuple[str | None, str] | None:
        """Return (JSON text, note) of a value; None if it does not begin with the id of a schema. Without a text the note says
        why."""
        schema_id = schema_id_of(data)
        if schema_id is None:
            return None
        if schema_id not in self._loaded:
            return None, self._failed.get(schema_id, (0.0, f"schema {schema_id} was not read"))[1]
        try:
            value = self._registry.decode(data)
        except ValueError as exc:
            return None, str(exc)
        return json.dumps(value, ensure_ascii=False, indent=2 if is_indented else None), f"schema {schema_id}"
