"""SaslHandshake and SaslAuthenticate, which lead to `login`; DescribeUserScramCredentials and AlterUserScramCredentials: users
that clients make. Source: KIP-43, KIP-152, KIP-554, Kafka's ScramControlManager and ScramImage.

Clients send what they have salted, no password; the users of the configuration's file are not listed and cannot be changed.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages import security as messages
from ....protocol.kafka.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from ...loop.procedures import in_turns
from .door import Call

MAX_SALT_BYTES: Final = 1024
MAX_USER_CHARACTERS: Final = 1024

Key = tuple[str, ScramMechanism]
Change = messages.AlterUserScramCredentialsScramCredentialDeletion | messages.AlterUserScramCredentialsScramCredentialUpsertion


async def describe_user_scram_credentials(
    call: Call, body: messages.DescribeUserScramCredentialsRequest
) -> messages.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations by user; all users for none in particular."""
    users: dict[str, list[messages.DescribeUserScramCredentialsCredentialInfo]] = {}
    for (user, mechanism), credential in sorted(call.broker.security.scram_users().items()):
        info = messages.DescribeUserScramCredentialsCredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        users.setdefault(user, []).append(info)
    asked = [user.name for user in body.users or ()] or list(users)
    results = [_described(name, users.get(name), count) async for name, count in in_turns(Counter(asked).items())]
    return messages.DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    user: str, infos: list[messages.DescribeUserScramCredentialsCredentialInfo] | None, count: int
) -> messages.DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif infos is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return messages.DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=[] if code else infos or []
    )


async def alter_user_scram_credentials(
    call: Call, body: messages.AlterUserScramCredentialsRequest
) -> messages.AlterUserScramCredentialsResponse:
    """All changes of a user are made, or none; in effect, and on the device, when this is answered."""
    users = dict.fromkeys([each.name for each in body.deletions] + [each.name for each in body.upsertions])
    errors: dict[str, RequestError] = {}
    try:
        call.check_authorized(AclOperation.ALTER, ResourceType.CLUSTER)
        upsertions, deletions, errors = _changes(call, body)
        await call.broker.security.alter_scram_users(upsertions, deletions)
    except RequestError as exc:
        errors = dict.fromkeys(users, exc) | errors
    return messages.AlterUserScramCredentialsResponse(results=[_result(user, errors.get(user)) for user in users])


def _result(user: str, error: RequestError | None) -> messages.AlterUserScramCredentialsResult:
    if error is None:
        return messages.AlterUserScramCredentialsResult(user=user, error_message=None)
    return messages.AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)


def _changes(
    call: Call, body: messages.AlterUserScramCredentialsRequest
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
            _check_user(each.name, each.mechanism)
            if (each.name, each.mechanism) in seen:
                message = "A user credential cannot be altered twice in the same request"
                raise RequestError(message, ErrorCode.DUPLICATE_RESOURCE)
            seen.add((each.name, each.mechanism))
            key = each.name, ScramMechanism(each.mechanism)
            if isinstance(each, messages.AlterUserScramCredentialsScramCredentialUpsertion):
                upsertions[key] = _credential(each)
            elif key in known:
                deletions.append(key)
            else:
                message = "Attempt to delete a user credential that does not exist"
                raise RequestError(message, ErrorCode.RESOURCE_NOT_FOUND)
        except RequestError as exc:
            errors.setdefault(each.name, exc.as_answer())
    kept = {key: credential for key, credential in upsertions.items() if key[0] not in errors}
    return kept, [key for key in deletions if key[0] not in errors], errors


def _check_user(user: str, mechanism: int) -> None:
    if not user:
        raise RequestError("Username must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if len(user) > MAX_USER_CHARACTERS:
        raise RequestError(f"Username is longer than {MAX_USER_CHARACTERS} characters", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if mechanism not in set(ScramMechanism):
        raise RequestError("Unknown SCRAM mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM)


def _credential(upsertion: messages.AlterUserScramCredentialsScramCredentialUpsertion) -> ScramCredential:
    mechanism = ScramMechanism(upsertion.mechanism)
    reason = None
    if upsertion.iterations < MIN_ITERATIONS:
        reason = "Too few iterations"
    elif upsertion.iterations > MAX_ITERATIONS:
        reason = "Too many iterations"
    elif not upsertion.salt or len(upsertion.salt) > MAX_SALT_BYTES:
        reason = f"A salt has 1 to {MAX_SALT_BYTES} bytes"
    elif not upsertion.salted_password:  # of any other length, as in Kafka: it is only a key that others are made with
        reason = "A salted password must not be empty"
    if reason is not None:
        raise RequestError(reason, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return ScramCredential.from_salted_password(
        mechanism, upsertion.iterations, bytes(upsertion.salt), bytes(upsertion.salted_password)
    )


def sasl_handshake(call: Call, body: messages.SaslHandshakeRequest) -> messages.SaslHandshakeResponse:
    """Version 0 is followed by bare tokens, version 1 by SaslAuthenticate."""
    login = call.login
    if login is None:
        raise RequestError("nobody logs in here", ErrorCode.ILLEGAL_SASL_STATE)
    return login.choose(body.mechanism, tokens_follow=call.version == 0)


async def sasl_authenticate(call: Call, body: messages.SaslAuthenticateRequest) -> messages.SaslAuthenticateResponse:
    """A token of the exchange that SaslHandshake began."""
    login = call.login
    if login is None or login.is_done:
        message = "SaslAuthenticate request received after successful authentication"
        raise RequestError(message, ErrorCode.ILLEGAL_SASL_STATE)
    return await login.take(body.auth_bytes)
