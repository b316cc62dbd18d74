"""The users of the tests of rights: for each case one who may, and one for each right that is missing."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.authorization import CLUSTER_NAME, DENIED

from tests.support.kafka_rights import cases
from tests.support.kafka_wire import ask

from .case import AWAY, CLUSTER, THERE, TOPIC, TRANSACTION, Case, Right
from .hidden import HIDDEN, Hidden

CASES: Final = [*cases.OF_TOPICS, *cases.OF_GROUPS, *cases.OF_CLUSTER]
LOGIN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Every client of the world has sent these without any right."""


OF_TOPICS: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.METADATA, ApiKey.STREAMS_GROUP_HEARTBEAT})
"""A right on the cluster stands for one on every topic, and who has neither is told of the topic."""


@attrs.frozen
class Asker:
    """A user, and the case for which it is there."""

    user: str
    case: Case
    missing: Right | None = None
    """None: it has all rights of its case."""
    more: tuple[Right, ...] = ()
    """That it has beside them."""
    hidden: Hidden | None = None

    @property
    def label(self) -> str:
        if self.hidden is not None:
            said = f"seeing by {_said(self.hidden.sees)}" if self.more else f"not seeing without {_said(self.hidden.sees)}"
        else:
            said = "with all rights" if self.missing is None else f"without {_said(self.missing)}"
        return f"{self.case.label} {said}"

    @property
    def own(self) -> str:
        """A name of things that nobody else asks for."""
        return f"{self.user}s"

    @property
    def has(self) -> list[Right]:
        return [*(right for right in self.case.rights if right != self.missing), *self.more]

    @property
    def asks_about(self) -> tuple[str, ...]:
        """Its own things, where it may have or make them; else what is there, and what is not."""
        return (self.own,) if self.missing is None or self.case.is_about_new else (THERE, AWAY)

    @property
    def refusal(self) -> str:
        """The error that names the right which is missing."""
        assert self.missing is not None
        kind = self.missing[1]
        if self.case.key is ApiKey.INIT_PRODUCER_ID and kind is not TRANSACTION:
            return DENIED[CLUSTER].name
        return DENIED[TOPIC if self.case.key in OF_TOPICS and kind is CLUSTER else kind].name

    @property
    def names(self) -> tuple[str, ...]:
        """What its rights are about."""
        return (self.own, f"{self.own}-store-changelog", THERE, AWAY)


def _said(right: Right) -> str:
    return f"{right[0].name} {right[1].name}"


@functools.cache
def askers() -> tuple[Asker, ...]:
    """For each case one who may, and one for each right that is missing; for what is hidden one who sees it, and one who does
    not."""
    found: list[Asker] = []
    for case in CASES:
        found += [Asker(f"user{len(found) + number}", case, right) for number, right in enumerate((None, *case.rights))]
    for hidden in HIDDEN:
        for more in ((hidden.sees,), ()):
            found.append(Asker(f"user{len(found)}", hidden.case, more=more, hidden=hidden))
    return tuple(found)


def acls_of(asking: Iterable[Asker]) -> Any:
    """The rights of all."""
    rights = {
        (asker.user, operation, kind, CLUSTER_NAME if kind is CLUSTER else name)
        for asker in asking
        for operation, kind in asker.has
        for name in asker.names
    }
    acls = [
        {**cases.ACL, "resource_type": kind, "resource_name": name, "principal": f"User:{user}", "operation": operation}
        for user, operation, kind, name in sorted(rights)
    ]
    return ask("CreateAcls", creations=acls)
