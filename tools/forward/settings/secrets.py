"""Values that nobody else is to see: they come from files or from variables of the environment, and are shown nowhere.

In a settings file `{ file = "/run/secrets/kafka" }` and `{ variable = "KAFKA_PASSWORD" }` stand for a text. A password that
stands in the file itself is refused, since such files are copied, backed up and shown to others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

SECRET_ENDINGS: Final = (".password", ".secret", ".pem", "oauthbearer.config", "client.assertion")
MAX_SECRET_BYTES: Final = 64 * 1024


@attrs.frozen
class Secret:
    """The location of a secret. The link reads it for each connection, so that a renewed secret takes effect."""

    kind: str
    """`file` or `variable`."""
    name: str

    def read(self) -> str:
        """Raises OSError, ValueError."""
        if self.kind == "variable":
            found = os.environ.get(self.name)
            if found is None:
                raise ValueError(f"the environment has no variable {self.name}")
            return found
        with Path(self.name).open("rb") as stream:
            data = stream.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise ValueError(f"{self.name} has more than {MAX_SECRET_BYTES} bytes")
        return data.decode().rstrip("\r\n")


def is_secret(key: str) -> bool:
    """Return whether a setting of librdkafka is secret."""
    return key.endswith(SECRET_ENDINGS)


def read_secret(value: Any) -> Secret:
    """Read the location of a secret from a settings value. Raises ValueError, which repeats nothing that may be secret."""
    if not isinstance(value, dict) or len(value) != 1 or not {"file", "variable"} & set(value):
        raise ValueError('a secret is { file = "PATH" } or { variable = "NAME" }')
    ((kind, name),) = value.items()
    if not isinstance(name, str) or not name:
        raise ValueError(f"{kind} = {name!r} is not a text")
    return Secret(kind, name)


def read_value(key: str, value: Any) -> str | Secret:
    """A setting of librdkafka as a settings file has it. Raises ValueError."""
    if isinstance(value, dict):
        return read_secret(value)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is neither a text nor a number")
    if is_secret(key):
        raise ValueError('secrets do not stand in the file itself: { file = "PATH" } or { variable = "NAME" }')
    return str(value)


def resolved(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """The texts. Raises ValueError that names the key, not what was found."""
    found = {}
    for key, value in values.items():
        try:
            found[key] = value.read() if isinstance(value, Secret) else value
        except (OSError, ValueError) as exc:
            raise ValueError(f"{key} cannot be read: {exc}") from exc
    return found
