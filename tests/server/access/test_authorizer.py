"""The authoriser against a model that looks at every ACL, and the rules one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.server.access.acls import Acl, AclAuthorizer, Question

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
acls = st.builds(
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


@given(st.lists(acls, max_size=8), questions, st.booleans())
def test_it_decides_as_the_model_does(rules: list[Acl], question: Question, everyone: bool) -> None:
    made = authorizer(*rules, everyone=everyone)
    assert made.known(question) is None
    assert made.decide(question) is model(rules, question, everyone)
    assert made.known(question) is model(rules, question, everyone)


@given(st.lists(acls, max_size=6), st.lists(acls, max_size=6), questions)
def test_nothing_of_former_acls_is_left(before: list[Acl], after: list[Acl], question: Question) -> None:
    made = authorizer(*before)
    made.decide(question)
    made.replace(after)
    assert made.decide(question) is model(after, question, False)


@given(st.lists(acls, max_size=8), st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), st.sampled_from([READ, WRITE]))
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


def test_without_acls_on_a_resource_nobody_may_or_everybody() -> None:
    assert not may(authorizer())
    assert may(authorizer(everyone=True))
    assert may(authorizer(acl("b"), everyone=True))
    assert not may(authorizer(acl("a", principal="User:bob"), everyone=True))


def test_a_denial_is_stronger_and_of_its_operation_only() -> None:
    made = authorizer(acl("a", ALLOW, ALL), acl("a", DENY, READ))
    assert not may(made, READ)
    assert may(made, WRITE)
    assert may(made, DESCRIBE)


def test_many_questions_do_not_grow_it() -> None:
    made = authorizer(acl("a", pattern=PREFIXED))
    for number in range(25_000):
        assert may(made, name=f"a{number}")
    assert len(made._decided) <= 10_000
