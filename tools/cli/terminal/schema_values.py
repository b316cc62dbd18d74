"""`--schema-registry URL`: the option, and what a command prints of keys and values."""

from __future__ import annotations

from typing import Any

import attrs
import click

from ...schemas.registry_values import NoRegistryError, RegistryValues, SchemaError, schema_id_of
from .failures import FailedError, NotConnectedError
from .output import as_json_value


def registry_at(url: str) -> RegistryValues:
    """Raises UsageError for a URL that is not http:// or https://."""
    try:
        return RegistryValues.of(url)
    except ValueError as exc:
        raise click.UsageError(f"--schema-registry: {exc}") from None


@attrs.frozen(eq=False, repr=False)
class SchemaValues:
    """Keys and values as JSON for a command."""

    registry: RegistryValues

    def decode(self, data: bytes | None) -> Any:
        """Return a key or a value as JSON; one that does not begin with the id of a schema stays as it is. Raises FailedError,
        NotConnectedError."""
        if data is None or schema_id_of(data) is None:
            return as_json_value(data)
        try:
            return self.registry.decode(data)
        except NoRegistryError as exc:
            raise NotConnectedError(str(exc)) from None
        except SchemaError as exc:
            raise FailedError(str(exc)) from None
        except ValueError as exc:
            raise FailedError(f"{exc}. Leave out --schema-registry") from None
