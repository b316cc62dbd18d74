"""The permissions of a connection's peer, by ACLs, and rules that calls of both protocols share. Source: Kafka's AuthHelper,
ControllerApis and KafkaApis."""

from __future__ import annotations

from typing import Any

from ....protocol.errors import AuthorizationError
from ....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from ...broker import Broker, Security
from ..connections.session import Session


class Asker:
    """Somebody who asks for something over a connection. A subclass has the attributes."""

    __slots__ = ()

    guard: Security | None
    """Who knows what a principal may do; None: everybody may do everything."""
    session: Session[Any]

    @property
    def broker(self) -> Broker:
        raise NotImplementedError

    def authorize(
        self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME, *, quietly: bool = False
    ) -> bool:
        """Return whether the client may perform the operation on a resource; always True where no ACLs are enforced. `quietly`:
        a denial does not count as a refusal."""
        if self.guard is None:
            return True
        session = self.session
        return self.guard.allows(session.principal, session.transport.host, operation, kind, name, quietly=quietly)

    def check_authorized(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises AuthorizationError, with the code that Kafka has for the kind of resource."""
        if self.guard is not None and not self.authorize(operation, kind, name):
            raise AuthorizationError(f"{self.session.principal} may not {operation.name} {kind.name} {name}", DENIED[kind])

    def may_see(self, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether a response to the client may include this resource. A denial does not count as a refusal."""
        return self.authorize(AclOperation.DESCRIBE, kind, name, quietly=True)

    def may_on_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether the client may perform the operation on at least one possible resource of the kind."""
        if self.guard is None or self.guard.authorizer is None:
            return True
        return self.guard.authorizer.may_on_any(self.session.principal, self.session.transport.host, operation, kind)

    def may_create_topic(self, name: str) -> bool:
        """CREATE on the cluster is the right to make every topic."""
        return self.authorize(AclOperation.CREATE, ResourceType.CLUSTER, quietly=True) or self.authorize(
            AclOperation.CREATE, ResourceType.TOPIC, name
        )

    def may_delete_topic(self, name: str, *, is_there: bool) -> bool:
        """DELETE on the cluster is the right to delete every topic. Whoever may describe one that is missing is told
        that."""
        if self.authorize(AclOperation.DELETE, ResourceType.CLUSTER, quietly=True) or self.authorize(
            AclOperation.DELETE, ResourceType.TOPIC, name
        ):
            return True
        return not is_there and self.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name, quietly=True)

    def may_have_producer_id(self) -> bool:
        """Without a transactional id, WRITE on any topic is enough, else IDEMPOTENT_WRITE on the cluster."""
        return self.may_on_any(AclOperation.WRITE, ResourceType.TOPIC) or self.authorize(
            AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
        )
