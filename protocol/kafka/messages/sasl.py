"""SaslHandshake (17), SaslAuthenticate (36), Describe and AlterUserScramCredentials (50, 51; KIP-554).

SaslHandshake: v0 is followed by bare tokens, v1 by SaslAuthenticate (KIP-152), whose v1 tells how long a login lasts (KIP-368).
"""

from __future__ import annotations

from ...schema.fields import BYTES, INT8, INT16, INT32, INT64, STRING, struct, wire
from ..apis import USER_NAME


@struct
class SaslHandshakeRequest:
    mechanism: str = wire(STRING)


@struct
class SaslHandshakeResponse:
    error_code: int = wire(INT16, default=0)
    mechanisms: list[str] = wire([STRING])


@struct
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire(BYTES, shown=False)


@struct
class SaslAuthenticateResponse:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    auth_bytes: bytes = wire(BYTES, shown=False)
    session_lifetime_ms: int = wire(INT64, "1+")


@struct
class DescribeUserScramCredentialsUserName:
    name: str = wire(USER_NAME)


@struct
class DescribeUserScramCredentialsRequest:
    users: list[DescribeUserScramCredentialsUserName] | None = wire([DescribeUserScramCredentialsUserName], nullable="0+")


@struct
class DescribeUserScramCredentialsCredentialInfo:
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@struct
class DescribeUserScramCredentialsResult:
    user: str = wire(USER_NAME)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    credential_infos: list[DescribeUserScramCredentialsCredentialInfo] = wire([DescribeUserScramCredentialsCredentialInfo])


@struct
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = wire([DescribeUserScramCredentialsResult])


@struct
class AlterUserScramCredentialsScramCredentialDeletion:
    name: str = wire(USER_NAME)
    mechanism: int = wire(INT8)


@struct
class AlterUserScramCredentialsScramCredentialUpsertion:
    name: str = wire(USER_NAME)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES, shown=False)


@struct
class AlterUserScramCredentialsRequest:
    deletions: list[AlterUserScramCredentialsScramCredentialDeletion] = wire([AlterUserScramCredentialsScramCredentialDeletion])
    upsertions: list[AlterUserScramCredentialsScramCredentialUpsertion] = wire(
        [AlterUserScramCredentialsScramCredentialUpsertion]
    )


@struct
class AlterUserScramCredentialsResult:
    user: str = wire(USER_NAME)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: list[AlterUserScramCredentialsResult] = wire([AlterUserScramCredentialsResult])
