"""ACLs that can be made, and which of them a filter means."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRequestError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.server.access.acls import Acl, AclFilter, check_new_acl, is_about

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


@given(acls)
def test_an_open_filter_means_all_and_an_exact_one_itself(acl: Acl) -> None:
    exact = AclFilter(*acl)
    assert ALL_OF_THEM.matches(acl)
    assert exact.matches(acl)


@given(acls, acls)
def test_an_exact_filter_means_nothing_else(one: Acl, other: Acl) -> None:
    assert AclFilter(*one).matches(other) is (one == other)


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
