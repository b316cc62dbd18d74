"""Keys and values that begin with the id of a schema, decoded by a schema registry.

Such bytes are a zero, the id (4 bytes, big endian), and the value as a serializer of Confluent's writes it. Other bytes stay as
they are. The registry gets one request for each id.
"""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import attrs
import click

from ....protocol.extras import how_to_install
from ....server.registry.errors import RegistryError
from ....server.registry.formats.parsed import Dependency, Parsed
from ....server.registry.formats.parsing import parse
from ....server.registry.records import AVRO
from .failures import FailedError, NotConnectedError
from .output import as_json_value

TIMEOUT_S: Final = 30.0
HEAD_BYTES: Final = 5
MOST_REFERENCES: Final = 1_000
MOST_ANSWER_BYTES: Final = 16 * 2**20


@attrs.define(eq=False, repr=False)
class SchemaValues:
    """Decodes values by the registry at a URL. Owner: the command."""

    _host: str
    _path: str
    _is_secure: bool
    _headers: dict[str, str]
    _schemas: dict[int, Parsed] = attrs.field(factory=dict)

    @classmethod
    def of(cls, url: str) -> SchemaValues:
        """Raises UsageError for a URL that is not http:// or https://."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError("--schema-registry: expected a URL such as http://127.0.0.1:8081")
        headers = {}
        if parts.username:
            named = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(named.encode()).decode()}"
        host = parts.netloc.rpartition("@")[2]
        return cls(host, parts.path.rstrip("/"), parts.scheme == "https", headers)

    def decode(self, data: bytes | None) -> Any:
        """Return a key or a value as JSON. Raises FailedError for an unknown schema and for a value that does not fit it,
        NotConnectedError without a registry."""
        if data is None or len(data) < HEAD_BYTES or data[0]:
            return as_json_value(data)
        schema_id = int.from_bytes(data[1:HEAD_BYTES])
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._schema(schema_id)
        try:
            return _plain(self._schemas[schema_id].decode(data[HEAD_BYTES:]))
        except (ValueError, RecursionError) as exc:
            raise FailedError(f"a value cannot be decoded by schema {schema_id}: {exc}. Leave out --schema-registry") from None

    def _schema(self, schema_id: int) -> Parsed:
        found = self._get(f"/schemas/ids/{schema_id}")
        try:
            return parse(found.get("schemaType", AVRO), found["schema"], self._dependencies(found))
        except ModuleNotFoundError as exc:
            raise FailedError(f"schema {schema_id} needs {exc.name}: {how_to_install('registry')}") from None
        except (RegistryError, KeyError) as exc:
            raise FailedError(f"schema {schema_id} of the registry at {self._host} cannot be used: {exc}") from None

    def _dependencies(self, schema: dict[str, Any]) -> tuple[Dependency, ...]:
        """Return the schemas behind references, each after those that it refers to itself."""
        found: dict[tuple[str, int], Dependency] = {}
        stack = [(each, False) for each in reversed(schema.get("references", []))]
        read: dict[tuple[str, int], dict[str, Any]] = {}
        while stack and len(read) <= MOST_REFERENCES:
            reference, is_done = stack.pop()
            place = reference["subject"], reference["version"]
            if is_done:
                found[place] = Dependency(reference["name"], read[place]["schema"])
            elif place not in read:
                subject = quote(place[0], safe="")
                read[place] = self._get(f"/subjects/{subject}/versions/{place[1]}?deleted=true")
                stack.append((reference, True))
                stack += [(each, False) for each in reversed(read[place].get("references", []))]
        return tuple(found.values())

    def _get(self, path: str) -> dict[str, Any]:
        """Raises FailedError, NotConnectedError."""
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, timeout=TIMEOUT_S)
        try:
            connection.request("GET", self._path + path, headers=self._headers)
            response = connection.getresponse()
            value = json.loads(response.read(MOST_ANSWER_BYTES))
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise NotConnectedError(f"no response from the schema registry at {self._host}: {exc}") from None
        finally:
            connection.close()
        if response.status != 200 or not isinstance(value, dict):
            why = value.get("message") if isinstance(value, dict) else "it is not a schema registry"
            raise FailedError(f"the schema registry at {self._host} refused GET {path}: {why}")
        return value


def _plain(value: Any) -> Any:
    """Return a decoded value without bytes."""
    if isinstance(value, bytes):
        return as_json_value(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
