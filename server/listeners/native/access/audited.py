"""Calls of the native protocol that change topics, groups, quotas or configuration, and what they name: for the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from .....protocol.native import messages

NATIVE: Final = "native"


def _topics(message: Any) -> Iterable[str]:
    return [each if isinstance(each, str) else each.name for each in message.topics]


def _configs(message: messages.AlterConfigsRequest) -> Iterable[str]:
    return [f"{topic.name}: {key}" for topic in message.topics for key in (*topic.set, *topic.delete)]


def _partitions(message: messages.DeleteRecordsRequest) -> Iterable[str]:
    return [f"{each.topic}-{each.partition}" for each in message.partitions]


def _gaps(message: messages.AcceptGapsRequest) -> Iterable[str]:
    return [f"{each.topic}-{each.partition}: offset {each.start_offset}" for each in message.partitions]


def _groups(message: messages.DeleteGroupsRequest) -> Iterable[str]:
    return message.groups


def _share_offsets(message: messages.AlterShareGroupOffsetsRequest) -> Iterable[str]:
    return [f"{message.group}: {topic}" for topic in dict.fromkeys(each.topic for each in message.partitions)]


def _quotas(message: messages.AlterQuotasRequest) -> Iterable[str]:
    return [
        ", ".join(f"{part.type} {'<default>' if part.name is None else part.name}" for part in quota.entity)
        for quota in message.changes
    ]


def _users(message: messages.AlterUsersRequest) -> Iterable[str]:
    return [f"{'set' if each.iterations else 'delete'} {each.user}" for each in message.changes]


def _acl(acl: messages.AclEntry) -> str:
    what = f"{acl.operation} {acl.resource_type} {acl.pattern_type} {acl.resource_name}"
    return f"{acl.permission} {acl.principal} at {acl.host} {what}"


def _transaction(message: messages.AbortTransactionRequest) -> Iterable[str]:
    return [f"transactional id {message.transactional_id}"]


def _hanging(message: messages.AbortHangingTransactionsRequest) -> Iterable[str]:
    return [f"{each.topic}-{each.partition}: producer {each.producer_id}" for each in message.partitions]


AUDITED: Final[dict[type[messages.RequestMessage], Callable[[Any], Iterable[str]]]] = {
    messages.CreateTopicsRequest: _topics,
    messages.DeleteTopicsRequest: _topics,
    messages.CreatePartitionsRequest: _topics,
    messages.AlterConfigsRequest: _configs,
    messages.DeleteRecordsRequest: _partitions,
    messages.AcceptGapsRequest: _gaps,
    messages.AbortTransactionRequest: _transaction,
    messages.AbortHangingTransactionsRequest: _hanging,
    messages.DeleteGroupsRequest: _groups,
    messages.AlterShareGroupOffsetsRequest: _share_offsets,
    messages.AlterQuotasRequest: _quotas,
    messages.AlterUsersRequest: _users,
    messages.CreateAclsRequest: lambda message: map(_acl, message.acls),
    messages.DeleteAclsRequest: lambda message: map(_acl, message.filters),
}
"""By call: what it names."""
