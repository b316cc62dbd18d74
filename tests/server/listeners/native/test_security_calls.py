"""Each change of users and ACLs over the native protocol succeeds or fails alone, with the error of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
import triolog
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages as m

from tests.support.wire_client import WireClient

STORED = m.UserChange("alice", "SCRAM-SHA-256", 4096, b"salt", b"salted")
RULE = m.AclEntry("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")


@pytest.fixture
def client() -> Iterator[WireClient]:
    keys = {"acl_enable": "true", "super_users": "User:ANONYMOUS"}
    with triolog.blocking.open(security=keys, native="127.0.0.1:0") as broker, WireClient.connect(broker.native) as connected:
        yield connected


def codes(entries: object) -> list[ErrorCode | None]:
    assert isinstance(entries, tuple)
    return [None if each.error is None else each.error.code for each in entries]


def test_credentials_are_stored_listed_and_deleted(client: WireClient) -> None:
    other = attrs.evolve(STORED, mechanism="SCRAM-SHA-512", iterations=8192)
    changed = client.call(m.AlterUsersRequest((STORED, other)))
    assert codes(changed.users) == [None, None]
    described = client.call(m.DescribeUsersRequest()).credentials
    assert [(each.mechanism, each.iterations) for each in described] == [("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)]
    assert codes(client.call(m.AlterUsersRequest((m.UserChange("alice", "SCRAM-SHA-256"),))).users) == [None]
    assert [each.mechanism for each in client.call(m.DescribeUsersRequest()).credentials] == ["SCRAM-SHA-512"]


def test_a_wrong_credential_fails_and_the_others_are_stored(client: WireClient) -> None:
    wrong = {
        m.UserChange("bob", "SCRAM-SHA-256"): ErrorCode.RESOURCE_NOT_FOUND,
        attrs.evolve(STORED, user="bob", mechanism="PLAIN"): ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        attrs.evolve(STORED, user="bob", iterations=1): ErrorCode.UNACCEPTABLE_CREDENTIAL,
        attrs.evolve(STORED, user="carol", salt=b""): ErrorCode.UNACCEPTABLE_CREDENTIAL,
        attrs.evolve(STORED, user="carol", salted_password=b""): ErrorCode.UNACCEPTABLE_CREDENTIAL,
        STORED: None,
    }
    changed = client.call(m.AlterUsersRequest((*wrong, STORED)))
    assert codes(changed.users) == [*wrong.values(), ErrorCode.DUPLICATE_RESOURCE]
    assert [each.user for each in client.call(m.DescribeUsersRequest()).credentials] == ["alice"]


def test_the_salted_password_is_in_no_message_that_is_shown() -> None:
    assert "salted'" not in repr(STORED)


def test_rules_are_created_found_and_deleted(client: WireClient) -> None:
    prefixed = attrs.evolve(RULE, resource_name="ord", pattern_type="PREFIXED", host=None)
    assert codes(client.call(m.CreateAclsRequest((RULE, prefixed, RULE))).acls) == [None] * 3
    prefixed = attrs.evolve(prefixed, host="*")
    for wanted, found in (
        (m.AclEntry(), [prefixed, RULE]),
        (m.AclEntry(resource_type="TOPIC", resource_name="orders"), [RULE]),
        (m.AclEntry(resource_type="TOPIC", resource_name="orders", pattern_type="MATCH"), [prefixed, RULE]),
        (m.AclEntry(principal="User:bob"), []),
    ):
        described = client.call(m.DescribeAclsRequest(wanted)).acls
        assert sorted(described, key=repr) == sorted(found, key=repr)
    gone = client.call(m.DeleteAclsRequest((attrs.evolve(RULE, host=None), m.AclEntry(resource_name="orders"))))
    assert gone.acls == (RULE,)
    assert client.call(m.DescribeAclsRequest(m.AclEntry())).acls == (prefixed,)


def test_a_wrong_rule_fails_and_the_others_are_created(client: WireClient) -> None:
    wrong = [attrs.evolve(RULE, **{name: "?"}) for name in ("resource_type", "pattern_type", "operation", "permission")]
    wrong += [
        attrs.evolve(RULE, principal="alice"),
        attrs.evolve(RULE, resource_name=None),
        attrs.evolve(RULE, operation="ANY"),
    ]
    created = client.call(m.CreateAclsRequest((*wrong, RULE)))
    assert codes(created.acls) == [ErrorCode.INVALID_REQUEST] * len(wrong) + [None]
    assert client.call(m.DescribeAclsRequest(m.AclEntry())).acls == (RULE,)
    for request in (m.DescribeAclsRequest(wrong[0]), m.DeleteAclsRequest((wrong[0],))):
        with pytest.raises(RequestError, match="'\\?' is not one of ANY, TOPIC"):
            client.call(request)
