"""Errors of the registry: an HTTP status, Confluent's error code, and a message.

Source: the API reference of Confluent's Schema Registry.
"""

from __future__ import annotations

from typing import Final

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_SUBJECT_COMPATIBILITY: Final = 40408
NO_SUBJECT_MODE: Final = 40409
INCOMPATIBLE: Final = 409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_COMPATIBILITY: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_DOES_NOT_MATCH: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
INVALID_RULE_SET: Final = 42210
STORE_ERROR: Final = 50001


class RegistryError(Exception):
    """The response to a request that failed."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """Return the HTTP status: the first three digits of the code."""
        return int(str(self.code)[:3])


class InvalidSchemaError(RegistryError):
    """The text is not a schema of its type."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_SCHEMA, message)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(schema: int | str | None = None) -> RegistryError:
    return RegistryError(SCHEMA_NOT_FOUND, "Schema not found" if schema is None else f"Schema {schema} not found")
