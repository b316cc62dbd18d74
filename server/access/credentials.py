"""Checks of the SCRAM credentials that clients store, over either protocol. Source: KIP-554, Kafka's ScramControlManager."""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.kafka.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism

MAX_SALT_BYTES: Final = 1024
MAX_USER_CHARACTERS: Final = 1024


def check_user_name(user: str) -> None:
    """Raises RequestError for a user whose credentials cannot be stored."""
    if not user:
        raise RequestError("Username must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if len(user) > MAX_USER_CHARACTERS:
        raise RequestError(f"Username is longer than {MAX_USER_CHARACTERS} characters", ErrorCode.UNACCEPTABLE_CREDENTIAL)


def new_credential(mechanism: ScramMechanism, iterations: int, salt: bytes, salted_password: bytes) -> ScramCredential:
    """Return the credential that a client stores. Raises RequestError."""
    reason = None
    if iterations < MIN_ITERATIONS:
        reason = "Too few iterations"
    elif iterations > MAX_ITERATIONS:
        reason = "Too many iterations"
    elif not salt or len(salt) > MAX_SALT_BYTES:
        reason = f"A salt has 1 to {MAX_SALT_BYTES} bytes"
    elif not salted_password:  # of any other length, as in Kafka: it is only a key that others are made with
        reason = "A salted password must not be empty"
    if reason is not None:
        raise RequestError(reason, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return ScramCredential.from_salted_password(mechanism, iterations, salt, salted_password)
