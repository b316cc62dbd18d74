"""A client of the schema registry's REST API: each call is one HTTP request on a connection of its own."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, Final
from urllib.parse import quote, urlsplit

import attrs

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


@attrs.frozen
class RegistryClient:
    url: str
    user: str | None = None
    password: str = ""
    headers: dict[str, str] = attrs.field(factory=dict)

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """Status, and the JSON value of the response, or its text."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        headers = {"Content-Type": MEDIA_TYPE, **self.headers}
        if self.user is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
            try:
                return response.status, json.loads(text)
            except ValueError:
                return response.status, text
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.send(method, path, None if body is None else json.dumps(body).encode())

    def get(self, path: str) -> Any:
        return self.value("GET", path)

    def value(self, method: str, path: str, body: Any = None) -> Any:
        """The value of a call that must succeed."""
        status, value = self.call(method, path, body)
        assert status == 200, (method, path, status, value)
        return value

    def error(self, method: str, path: str, body: Any = None) -> int:
        """The error code of a call that must fail. Its status is the first three digits."""
        status, value = self.call(method, path, body)
        assert status == int(str(value["error_code"])[:3]), (status, value)
        assert value["message"]
        return int(value["error_code"])

    def register(self, subject: str, schema: Any, **members: Any) -> int:
        """Register a schema, text or a value, and return its id."""
        return int(self.value("POST", f"/subjects/{quote(subject, safe='')}/versions", submission(schema, **members))["id"])


def submission(schema: Any, **members: Any) -> dict[str, Any]:
    return {"schema": schema if isinstance(schema, str) else json.dumps(schema), **members}


def record(name: str, *fields: Any) -> dict[str, Any]:
    """An Avro record whose fields are `name: type`, or whole fields."""
    parts = [each if isinstance(each, dict) else dict(zip(("name", "type"), each.split(": "), strict=True)) for each in fields]
    return {"type": "record", "name": name, "fields": parts}
