"""The guard of both protocols: its engine. `kafka/access/guard` and `native/access/guard` have a table of rules each.

| a rule of | says of a request |
|---|---|
| whole | it is refused as a whole, with the code of the first right that is missing |
| each | it has elements that are refused, each with the error; the others are served |
| hide | the client may not see everything in its answer |

Rights are checked before anything is looked up: a client that may not describe something cannot tell whether it exists. Without
ACLs nothing of this runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import attrs

from ....protocol.errors import AuthorizationError
from ....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from ...broker import is_internal
from .judging import JUDGED_PER_PAUSE, Steps
from .rights import Asker

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
