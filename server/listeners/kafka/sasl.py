"""SaslHandshake and SaslAuthenticate, which lead to `login`; DescribeUserScramCredentials and AlterUserScramCredentials: users
that clients make. Source: KIP-43, KIP-152, KIP-554, Kafka's ScramControlManager and ScramImage.

Clients send what they have salted, no password; the users of the configuration's file are not listed and cannot be changed.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    AlterUserScramCredentialsScramCredentialDeletion,
    AlterUserScramCredentialsScramCredentialUpsertion,
    DescribeUserScramCredentialsCredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ....protocol.kafka.scram import ScramCredential, ScramMechanism
from ...broker import check_user_name, new_credential
from ...loop.procedures import in_turns
from .door import Call

Key = tuple[str, ScramMechanism]
Change = AlterUserScramCredentialsScramCredentialDeletion | AlterUserScramCredentialsScramCredentialUpsertion


async def describe_user_scram_credentials(
    call: Call, body: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations by user; all users for none in particular."""
    users: dict[str, list[DescribeUserScramCredentialsCredentialInfo]] = {}
    for (user, mechanism), credential in sorted(call.broker.security.scram_users().items()):
        info = DescribeUserScramCredentialsCredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        users.setdefault(user, []).append(info)
    asked = [user.name for user in body.users or ()] or list(users)
    results = [_described(name, users.get(name), count) async for name, count in in_turns(Counter(asked).items())]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    user: str, infos: list[DescribeUserScramCredentialsCredentialInfo] | None, count: int
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif infos is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=[] if code else infos or []
    )


async def alter_user_scram_credentials(call: Call, body: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    """All changes of a user are made, or none; in effect, and on the device, when this is answered."""
    users = dict.fromkeys([each.name for each in body.deletions] + [each.name for each in body.upsertions])
    errors: dict[str, RequestError] = {}
    try:
        call.check_authorized(AclOperation.ALTER, ResourceType.CLUSTER)
        upsertions, deletions, errors = _changes(call, body)
        await call.broker.security.alter_scram_users(upsertions, deletions)
    except RequestError as exc:
        errors = dict.fromkeys(users, exc) | errors
    return AlterUserScramCredentialsResponse(results=[_result(user, errors.get(user)) for user in users])


def _result(user: str, error: RequestError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)


def _changes(
    call: Call, body: AlterUserScramCredentialsRequest
) -> tuple[dict[Key, ScramCredential], list[Key], dict[str, RequestError]]:
    """(credentials to store, credentials to delete, users with a wrong change and their errors)."""
    known = call.broker.security.scram_users()
    upsertions: dict[Key, ScramCredential] = {}
    deletions: list[Key] = []
    errors: dict[str, RequestError] = {}
    seen: set[tuple[str, int]] = set()
    changes: list[Change] = [*body.deletions, *body.upsertions]
    for each in changes:
        try:
            check_user_name(each.name)
            if each.mechanism not in set(ScramMechanism):
                raise RequestError("Unknown SCRAM mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            if (each.name, each.mechanism) in seen:
                message = "A user credential cannot be altered twice in the same request"
                raise RequestError(message, ErrorCode.DUPLICATE_RESOURCE)
            seen.add((each.name, each.mechanism))
            key = each.name, ScramMechanism(each.mechanism)
            if isinstance(each, AlterUserScramCredentialsScramCredentialUpsertion):
                upsertions[key] = new_credential(key[1], each.iterations, bytes(each.salt), bytes(each.salted_password))
            elif key in known:
                deletions.append(key)
            else:
                message = "Attempt to delete a user credential that does not exist"
                raise RequestError(message, ErrorCode.RESOURCE_NOT_FOUND)
        except RequestError as exc:
            errors.setdefault(each.name, exc.as_answer())
    kept = {key: credential for key, credential in upsertions.items() if key[0] not in errors}
    return kept, [key for key in deletions if key[0] not in errors], errors


def sasl_handshake(call: Call, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Version 0 is followed by bare tokens, version 1 by SaslAuthenticate."""
    login = call.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.choose(body.mechanism, tokens_follow=call.version == 0)


async def sasl_authenticate(call: Call, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """A token of the exchange that SaslHandshake began."""
    login = call.login
    if login is None or login.is_done:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"", session_lifetime_ms=0
        )
    return await login.take(body.auth_bytes)
