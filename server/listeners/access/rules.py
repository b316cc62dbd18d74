"""The guard of both protocols: its engine. `listeners/kafka/guard` and `listeners/native/guard` have a table of rules each.

| a rule of | says of a request |
|---|---|
| whole | it is refused as a whole, with the code of the first right that is missing |
| each | it has elements that are refused, each with the error; the others are served |
| hide | the client may not see everything in its answer |

Rights are checked before anything is looked up: a client that may not describe something cannot tell whether it exists. Without
ACLs nothing of this runs.

`Asker` has the permissions of a connection's peer. Source: Kafka's AuthHelper, ControllerApis and KafkaApis.

A request of a megabyte names a hundred thousand things, and each costs 10 us with many ACLs. So all of this is done in steps,
whatever the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Generic, TypeVar

import attrs

from ....protocol.errors import AuthorizationError, error_name
from ....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from ...broker import AuditLog, Broker, Security, is_internal
from ..connections.session import Session

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
CREATE_TOPIC: Final = "CREATE TOPIC, or CREATE CLUSTER"
DELETE_TOPIC: Final = "DELETE TOPIC, or DELETE CLUSTER"

E = TypeVar("E", bound="Each")
Names = Callable[[Any], Iterable[str]]
"""The names of resources in a request."""
Denied = ResourceType | None
"""The kind of resource that the client lacks a right on; None: it lacks none."""


@attrs.frozen
class Rule:
    """A right that a request as a whole requires."""

    says: str
    """The right, as the table of all calls has it."""
    check: Callable[[Asker, Any], Steps[None]]
    """(client, request). Raises AuthorizationError."""


@attrs.frozen
class Each:
    """The list of a request whose elements are checked one by one."""

    says: str
    """The right, as the table of all calls has it."""
    denied: Callable[[Any, Any, Any], Denied]
    """(client, request, element)."""


@attrs.frozen
class Rules(Generic[E]):
    """The rules of one call, each kind as the module's table describes it."""

    whole: tuple[Rule, ...] = ()
    each: E | None = None
    hide: Callable[..., Any] | None = None


def right(operation: AclOperation, kind: ResourceType) -> str:
    """A right in words."""
    return f"{operation.name} {kind.name}"


def needs(operation: AclOperation, kind: ResourceType, names: Names = lambda _: (CLUSTER_NAME,), says: str = "") -> Rule:
    """Require an operation on everything that a request names, or on the cluster."""

    def check(asker: Asker, message: Any) -> Steps[None]:
        for number, name in enumerate(names(message), 1):
            asker.check_authorized(operation, kind, name)
            if not number % JUDGED_PER_PAUSE:
                yield

    return Rule(right(operation, kind) + says, check)


def needs_otherwise(says: str, denied: Callable[[Any, Any], Denied]) -> Rule:
    """Require what `denied` checks: (client, request)."""

    def check(asker: Asker, message: Any) -> Steps[None]:
        yield from ()
        if (kind := denied(asker, message)) is not None:
            raise AuthorizationError(f"{asker.session.principal} may not {says}", DENIED[kind])

    return Rule(says, check)


def check_steps(asker: Asker, message: Any, rules: Rules[Any]) -> Steps[None]:
    """Check what a request requires as a whole. Raises AuthorizationError."""
    for rule in rules.whole:
        yield from rule.check(asker, message)


def denied_configs(asker: Asker, operation: AclOperation, kind: ResourceType, name: str) -> Denied:
    """The content of the server's own topics is everybody's: a change of their configuration needs a right on the cluster."""
    if kind is TOPIC and is_internal(name) and operation is AclOperation.ALTER_CONFIGS:
        kind = CLUSTER
    return None if asker.authorize(operation, kind, CLUSTER_NAME if kind is CLUSTER else name) else kind


def _without_id(asker: Asker, message: Any) -> Denied:
    return None if message.transactional_id is not None or asker.may_have_producer_id() else CLUSTER


PRODUCER_ID: Final = needs_otherwise("WRITE on any TOPIC, or IDEMPOTENT_WRITE CLUSTER, without a transactional id", _without_id)


class Asker:
    """Somebody who asks for something over a connection. A subclass has the attributes."""

    __slots__ = ()

    guard: Security | None
    """Who knows what a principal may do; None: everybody may do everything."""
    session: Session[Any]
    broker: Broker

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


T = TypeVar("T")
R = TypeVar("R")
Steps = Generator[None, None, T]
"""Pauses now and then, and answers a T in the end."""

JUDGED_PER_PAUSE: Final = 64


def divide_steps(elements: Iterable[T], refusal: Callable[[T], R | None]) -> Steps[tuple[list[T], list[tuple[int, T, R]]]]:
    """(elements that are served, the place and the element of each that is refused, with why)."""
    kept: list[T] = []
    refused: list[tuple[int, T, R]] = []
    for place, element in enumerate(elements):
        if place and not place % JUDGED_PER_PAUSE:
            yield
        why = refusal(element)
        if why is None:
            kept.append(element)
        else:
            refused.append((place, element, why))
    return kept, refused


def seen_steps(elements: Iterable[T], may_see: Callable[[T], bool]) -> Steps[list[T]]:
    """Those that the client may see."""
    seen, _ = yield from divide_steps(elements, lambda each: None if may_see(each) else True)
    return seen


def map_steps(elements: Iterable[T], function: Callable[[T], R]) -> Steps[list[R]]:
    """Return the function's result for each element."""
    made: list[R] = []
    yield from each_steps(elements, lambda each: made.append(function(each)))
    return made


def each_steps(elements: Iterable[T], change: Callable[[T], Any]) -> Steps[None]:
    """Do something with each."""
    for number, element in enumerate(elements, 1):
        change(element)
        if not number % JUDGED_PER_PAUSE:
            yield


def finish(steps: Steps[T]) -> T:
    """Return the result of the steps and run them without pauses. Use it only for small work."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: T = stop.value
            return found


def note_change(
    audit: AuditLog | None, asker: Asker, protocol: str, api: str, names: Iterable[str], codes: Iterable[int]
) -> None:
    """A client has asked for a change, of what `names` says, and was answered with these error codes. Values, which may be
    secrets, are not among the names. No audit log: nobody wants to know."""
    if audit is None:
        return
    session = asker.session
    audit.note(
        "change",
        principal=session.principal,
        host=session.transport.host,
        client_id=session.client_id,
        protocol=protocol,
        api=api,
        names=list(names),
        errors=[error_name(code) for code in codes if code],
    )
