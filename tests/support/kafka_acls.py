"""Rights of the clients of a Kafka listener that say not who they are."""

from __future__ import annotations

from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.types import ANONYMOUS
from triolog.server.broker import Acl, AclFilter

from tests.support.kafka_server import KafkaServer


async def allow(kafka: KafkaServer, operation: AclOperation, kind: ResourceType, name: str) -> None:
    """From now on everybody may do this."""
    acl = Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=ANONYMOUS,
        host="*",
        operation=operation,
        permission=AclPermission.ALLOW,
    )
    await kafka.broker.security.create_acls([acl])


async def forbid(kafka: KafkaServer, kind: ResourceType, name: str) -> None:
    """From now on nobody may do anything with this."""
    everything = AclFilter(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=None,
        host=None,
        operation=AclOperation.ANY,
        permission=AclPermission.ANY,
    )
    await kafka.broker.security.delete_acls([everything])
