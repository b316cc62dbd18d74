"""The file of users that a person writes (key `sasl_users_file`), TOML with a table for each:

    [alice]
    password = "alice-secret"                                # logs in by PLAIN and by SCRAM
    [bob]
    "scram-sha-256" = "salt=...,stored_key=...,server_key=...,iterations=8192"   # by SCRAM only: no password here

Its passwords never leave memory; what is made of them for SCRAM is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.kafka.scram import ScramCredential, ScramMechanism

MAX_USERS_FILE_BYTES: Final = 16 * 1024 * 1024
PASSWORD_KEY: Final = "password"
SCRAM_KEYS: Final = {mechanism.sasl_name.lower(): mechanism for mechanism in ScramMechanism}


@attrs.frozen
class ConfiguredUser:
    """A user of the file."""

    password: str | None = attrs.field(default=None, repr=False)
    credentials: Mapping[ScramMechanism, ScramCredential] = attrs.field(factory=dict)


def decode_users(path: str, data: bytes) -> dict[str, ConfiguredUser]:
    """The users by name. Raises InvalidConfigError naming the file and the user, never a password."""
    import tomllib  # an embedded broker starts without it

    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        where = getattr(exc, "lineno", None)
        raise InvalidConfigError(f"{path} is not TOML{f', line {where}' if where else ''}") from None
    return {name: _user(f"{path} [{name}]", table) for name, table in document.items()}


def _user(place: str, table: Any) -> ConfiguredUser:
    if not isinstance(table, dict) or not table:
        raise InvalidConfigError(f"{place}: a user is a table with {PASSWORD_KEY}, or {' or '.join(SCRAM_KEYS)}")
    password, credentials = None, {}
    for key, value in table.items():
        if not isinstance(value, str) or not value:
            raise InvalidConfigError(f"{place}: {key} is not text")
        if key == PASSWORD_KEY:
            password = value
        elif (mechanism := SCRAM_KEYS.get(key.lower())) is not None:
            try:
                credentials[mechanism] = ScramCredential.parse(mechanism, value)
            except ValueError as exc:
                raise InvalidConfigError(f"{place}: {key}: {exc}") from None
        else:
            raise InvalidConfigError(f"{place}: unknown key {key!r}. Known: {PASSWORD_KEY}, {', '.join(SCRAM_KEYS)}")
    return ConfiguredUser(password, credentials)
