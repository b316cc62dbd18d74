"""Keys and values that begin with the id of a schema, decoded by a schema registry: for `triolog consume`, SQL, Arrow and the
console.

Such bytes are a zero, the id (4 bytes, big endian), and the value as a serializer of Confluent's writes it. The registry gets
one request for each id, and one for each schema that it refers to. Calls block, from any thread.
"""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import attrs

from ...protocol.errors import TriologError
from ...protocol.extras import how_to_install
from ...server.registry.errors import RegistryError
from ...server.registry.formats.parsed import Dependency, Parsed
from ...server.registry.formats.parsing import parse
from ...server.registry.records import AVRO

TIMEOUT_S: Final = 30.0
HEAD_BYTES: Final = 5
MOST_REFERENCES: Final = 1_000
MOST_ANSWER_BYTES: Final = 16 * 2**20


class SchemaError(TriologError):
    """A schema that the registry does not have or that cannot be used."""


class NoRegistryError(SchemaError):
    """The registry does not respond."""


def schema_id_of(data: bytes | None) -> int | None:
    """Return the id of the schema with which a key or a value begins; None if it begins with something else."""
    return None if data is None or len(data) < HEAD_BYTES or data[0] else int.from_bytes(data[1:HEAD_BYTES])


@attrs.define(eq=False, repr=False)
class RegistryValues:
    """Decodes values by the registry at a URL. Owner: the reader of the values."""

    _host: str
    _path: str
    _is_secure: bool
    _headers: dict[str, str]
    _schemas: dict[int, Parsed] = attrs.field(factory=dict)

    @classmethod
    def of(cls, url: str) -> RegistryValues:
        """Raises ValueError for a URL that is not http:// or https://."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected a URL such as http://127.0.0.1:8081")
        headers = {}
        if parts.username:
            named = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(named.encode()).decode()}"
        host = parts.netloc.rpartition("@")[2]
        return cls(host, parts.path.rstrip("/"), parts.scheme == "https", headers)

    def decode(self, data: bytes) -> Any:
        """Return a value that begins with the id of a schema, as JSON: bytes are text, or `{"base64": ...}`. Raises
        SchemaError, NoRegistryError, and ValueError for a value that does not fit its schema."""
        schema_id = schema_id_of(data)
        if schema_id is None:
            raise ValueError("it does not begin with the id of a schema")
        self.load(schema_id)
        try:
            return _plain(self._schemas[schema_id].decode(data[HEAD_BYTES:]))
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"a value cannot be decoded by schema {schema_id}: {exc}") from None

    def load(self, schema_id: int) -> None:
        """Read a schema from the registry, unless it is known. Raises SchemaError, NoRegistryError."""
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._schema(schema_id)

    def _schema(self, schema_id: int) -> Parsed:
        found = self._get(f"/schemas/ids/{schema_id}")
        try:
            return parse(found.get("schemaType", AVRO), found["schema"], self._dependencies(found))
        except ModuleNotFoundError as exc:
            raise SchemaError(f"schema {schema_id} needs {exc.name}: {how_to_install('registry')}") from None
        except (RegistryError, KeyError, TypeError, AttributeError) as exc:
            raise SchemaError(f"schema {schema_id} of the registry at {self._host} cannot be used: {exc}") from None

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
        """Raises SchemaError, NoRegistryError."""
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, timeout=TIMEOUT_S)
        try:
            connection.request("GET", self._path + path, headers=self._headers)
            response = connection.getresponse()
            value = json.loads(response.read(MOST_ANSWER_BYTES))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as exc:
            raise NoRegistryError(f"no response from the schema registry at {self._host}: {exc}") from None
        finally:
            connection.close()
        if response.status != 200 or not isinstance(value, dict):
            why = value.get("message") if isinstance(value, dict) else "it is not a schema registry"
            raise SchemaError(f"the schema registry at {self._host} refused GET {path}: {why}")
        return value


def _plain(value: Any) -> Any:
    """Return a decoded value without bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
