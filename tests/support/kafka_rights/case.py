"""What a case of the tests of rights is: one way to ask for something of Kafka's protocol, and all that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.authorization import AclOperation, ResourceType
from triolog.protocol.records.builder import build_batch

from tests.support.kafka_wire import ask
from tests.support.logs import START_MS

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
Right = tuple[AclOperation, ResourceType]

THERE: Final = "there"
"""The name of a topic, a group and a transactional id that exist."""
AWAY: Final = "nobody"
"""The same of none."""
UNKNOWN_ID: Final = bytes(range(16))
MEMBER: Final = "AAECAwQFBgcICQoLDA0ODw"
"""As share groups want it: a UUID in base64."""
PLAIN_BATCH: Final = build_batch([(START_MS, b"key", b"value", ())])
IN_TRANSACTION: Final = build_batch(
    [(START_MS, b"key", b"value", ())], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
)


@attrs.frozen
class Names:
    """What a request is about. `of` names a topic, a group and a transactional id alike."""

    of: str
    topic_id: bytes


Fields = Mapping[str, Any]
"""The fields of a request, in which OF and OF_ID stand for the names."""
OF: Final = "{of}"
OF_ID: Final = object()


def filled(value: Any, names: Names) -> Any:
    """The fields of a request about these names."""
    if isinstance(value, Mapping):
        return {name: filled(each, names) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, names) for each in value]
    if isinstance(value, str):
        return value.replace(OF, names.of)
    return names.topic_id if value is OF_ID else value


Step = tuple[ApiKey, int, Fields]


@attrs.frozen
class Case:
    """One way to ask, and all that it needs."""

    label: str
    key: ApiKey
    version: int
    fields: Fields
    rights: tuple[Right, ...]
    before: tuple[Step, ...] = ()
    """What the same client has sent before, whatever it is told."""
    is_about_new: bool = False
    """It makes what it names, which must not be there."""

    def request(self, names: Names) -> tuple[Any, int]:
        return ask(APIS[self.key].name, **filled(self.fields, names)), self.version

    @property
    def is_by_id(self) -> bool:
        """Whether topics are named by ids: one that nobody has is no topic on which there could be a right."""
        named = (THERE, bytes(16)), (THERE, UNKNOWN_ID)
        first, second = (str(self.request(Names(*each))) for each in named)
        return first != second

    def prepared(self, names: Names) -> Iterator[tuple[Any, int]]:
        for key, version, fields in self.before:
            yield ask(APIS[key].name, **filled(fields, names)), version


ON: Final[dict[str, Right]] = {
    f"{operation.name} {kind.name}": (operation, kind)
    for operation in AclOperation
    for kind in (TOPIC, GROUP, CLUSTER, TRANSACTION)
}


def case(
    key: ApiKey,
    version: int,
    rights: str,
    /,
    *,
    way: str = "",
    before: tuple[Step, ...] = (),
    makes: bool = False,
    **fields: Any,
) -> Case:
    """`rights`: as in docs/reference/rights.md, with commas between them. `makes`: what it names, which must not be there."""
    needs = tuple(ON[each.strip()] for each in rights.split(",") if each.strip())
    label = " ".join([APIS[key].name, f"v{version}", *([way] if way else [])])
    return Case(label, key, version, fields, needs, before, makes)
