"""ACLs that can be made, and which of them a filter means. The authoriser against a model that looks at every ACL, and the
rules one by one. The file of users that a person writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidConfigError, InvalidRequestError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.access.acls import Acl, AclAuthorizer, AclFilter, Question, check_new_acl, is_about
from triolog.server.access.users import decode_users

GOOD = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
ALL_OF_THEM = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermission.ANY)
acls = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(["a", "ab", "*"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:*"]),
    st.sampled_from(["*", "::1"]),
    st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)


def test_a_right_one_can_be_made() -> None:
    check_new_acl(GOOD)
    check_new_acl(GOOD._replace(resource_type=ResourceType.CLUSTER, resource_name="kafka-cluster"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resource_type": ResourceType.ANY}, "resourceType ANY"),
        ({"resource_type": ResourceType.UNKNOWN}, "resourceType UNKNOWN"),
        ({"resource_type": ResourceType.CLUSTER}, "only valid name for the CLUSTER resource"),
        ({"resource_name": ""}, "empty resource name"),
        ({"pattern_type": PatternType.MATCH}, "patternType MATCH"),
        ({"operation": AclOperation.ANY}, "operation ANY"),
        ({"permission": AclPermission.ANY}, "permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal"),
        ({"principal": "User:"}, "Could not parse principal"),
    ],
)
def test_one_that_cannot_be_made(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        check_new_acl(GOOD._replace(**changes))


@given(acls, acls)
def test_an_open_filter_means_all_and_an_exact_one_itself_alone(acl: Acl, other: Acl) -> None:
    assert ALL_OF_THEM.matches(acl)
    assert AclFilter(*acl).matches(acl)
    assert AclFilter(*acl).matches(other) is (acl == other)


@given(acls, st.sampled_from(["a", "ab", "abc", "b"]))
def test_match_means_what_covers_the_resource(acl: Acl, name: str) -> None:
    wanted = attrs.evolve(ALL_OF_THEM, pattern_type=PatternType.MATCH, resource_name=name)
    assert wanted.matches(acl) is is_about(acl, name)
    any_pattern = attrs.evolve(ALL_OF_THEM, resource_name=name)
    assert any_pattern.matches(acl) is (acl.resource_name == name)


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_filter_of_unknown_things_is_refused(field: str) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        attrs.evolve(ALL_OF_THEM, **{field: type(getattr(ALL_OF_THEM, field))(0)})


ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL

OPERATIONS = [
    operation for operation in AclOperation if operation not in (AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL)
]
PRINCIPALS = ["User:alice", "User:bob"]
HOSTS = ["10.0.0.1", "::1"]
NAMES = ["a", "ab", "abc", "b"]
many_acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    st.sampled_from([*NAMES, "*"]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)
questions = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    st.sampled_from(NAMES),
)


def acl(
    name: str,
    permission: AclPermission = ALLOW,
    operation: AclOperation = READ,
    principal: str = "User:alice",
    pattern: PatternType = LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def authorizer(*rules: Acl, everyone: bool = False, super_users: frozenset[str] = frozenset()) -> AclAuthorizer:
    made = AclAuthorizer(super_users, everyone)
    made.replace(rules)
    return made


def may(made: AclAuthorizer, operation: AclOperation = READ, name: str = "a", principal: str = "User:alice") -> bool:
    return made.decide((principal, "10.0.0.1", operation, TOPIC, name))


def model(rules: Sequence[Acl], question: Question, everyone: bool) -> bool:
    """StandardAuthorizer's rules, one look at every ACL."""
    principal, host, operation, kind, name = question
    covering = [
        each
        for each in rules
        if each.resource_type == kind
        and (name.startswith(each.resource_name) if each.pattern_type == PREFIXED else each.resource_name in ("*", name))
    ]
    if not covering:
        return everyone
    mine = [each for each in covering if each.principal in (principal, "User:*") and each.host in ("*", host)]
    if any(each.permission == DENY and each.operation in (ALL, operation) for each in mine):
        return False
    enough = {operation, ALL}
    if operation == DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        enough |= {AclOperation.ALTER_CONFIGS}
    return any(each.permission == ALLOW and each.operation in enough for each in mine)


@given(st.lists(many_acls, max_size=8), questions, st.booleans())
def test_it_decides_as_the_model_does(rules: list[Acl], question: Question, everyone: bool) -> None:
    made = authorizer(*rules, everyone=everyone)
    assert made.known(question) is None
    assert made.decide(question) is model(rules, question, everyone)
    assert made.known(question) is model(rules, question, everyone)


@given(st.lists(many_acls, max_size=6), st.lists(many_acls, max_size=6), questions)
def test_nothing_of_former_acls_is_left(before: list[Acl], after: list[Acl], question: Question) -> None:
    made = authorizer(*before)
    made.decide(question)
    made.replace(after)
    assert made.decide(question) is model(after, question, False)


@given(st.lists(many_acls, max_size=8), st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), st.sampled_from([READ, WRITE]))
def test_whoever_may_on_one_resource_may_on_any(rules: list[Acl], principal: str, host: str, operation: AclOperation) -> None:
    made = authorizer(*rules)
    names = [*NAMES, "abcd", "zz", "bz"]
    if any(made.decide((principal, host, operation, TOPIC, name)) for name in names):
        assert made.may_on_any(principal, host, operation, TOPIC)


@pytest.mark.parametrize("deny", [acl("*", DENY, WRITE), acl("a", DENY, ALL, pattern=PREFIXED), acl("a", DENY, WRITE)])
def test_what_is_denied_as_a_whole_is_on_none(deny: Acl) -> None:
    assert authorizer(acl("a", ALLOW, WRITE)).may_on_any("User:alice", "10.0.0.1", WRITE, TOPIC)
    assert not authorizer(acl("a", ALLOW, WRITE), deny).may_on_any("User:alice", "10.0.0.1", WRITE, TOPIC)


def test_a_super_user_may_what_is_denied() -> None:
    made = authorizer(acl("*", DENY, ALL, "User:*"), super_users=frozenset({"User:root"}))
    assert may(made, principal="User:root")
    assert made.may_on_any("User:root", "::1", WRITE, TOPIC)
    assert not may(made)


def test_many_questions_do_not_grow_it() -> None:
    made = authorizer(acl("a", pattern=PREFIXED))
    for number in range(25_000):
        assert may(made, name=f"a{number}")
    assert len(made._decided) <= 10_000


CREDENTIAL = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, 4096, b"salt", "pencil")


def test_users_have_a_password_or_what_scram_keeps_of_one() -> None:
    text = f'[alice]\npassword = "secret"\n["b.o.b"]\n"scram-sha-256" = "{CREDENTIAL.as_text()}"\n'
    users = decode_users("users.toml", text.encode())
    assert users["alice"].password == "secret"
    assert users["b.o.b"].password is None
    assert users["b.o.b"].credentials == {ScramMechanism.SCRAM_SHA_256: CREDENTIAL}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[alice\npassword = "secret"', "users.toml is not TOML"),
        ("alice = " + "[" * 5000, "users.toml is not TOML"),
        ('alice = "secret"', r"users.toml \[alice\]: a user is a table"),
        ("[alice]\n", r"users.toml \[alice\]: a user is a table"),
        ("[alice]\npassword = 7\n", "password is not text"),
        ('[alice]\npassword = ""\n', "password is not text"),
        ('[alice]\npasword = "secret"\n', "unknown key 'pasword'"),
        ('[alice]\nscram-sha-256 = "secret"\n', "scram-sha-256: invalid SCRAM credential"),
        (
            '[alice]\nscram-sha-256 = "salt=a,stored_key=b,server_key=c,iterations=secret"\n',
            "scram-sha-256: iterations is not a number",
        ),
    ],
)
def test_what_is_wrong_is_said_without_a_secret(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason) as caught:
        decode_users("users.toml", text.encode())
    assert "secret" not in str(caught.value)
