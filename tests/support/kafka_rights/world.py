"""A broker under ACLs in which every user of `askers` has its rights, and what each is answered. It is made over the wire, so
any broker can be one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.authorization import DENIED, PatternType, ResourceType
from triolog.protocol.kafka.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.protocol.kafka.messages.topics import MetadataRequest

from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_rights.askers import CASES, Asker, acls_of, askers
from tests.support.kafka_rights.case import AWAY, THERE, UNKNOWN_ID, Case, Names, filled
from tests.support.kafka_rights.cases import FILTER
from tests.support.kafka_rights.hidden import Hidden
from tests.support.kafka_wire import KafkaWire, ask

T = TypeVar("T")

ADMIN: Final = "admin"
PASSWORD: Final = "password"
DEADLINE_S: Final = 60.0
LATER: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Codes of a coordinator that has not started: asked again."""
REFUSALS: Final = frozenset(code.name for code in DENIED.values())


def users() -> dict[str, str]:
    """All, with their passwords; ADMIN is to be a super user."""
    return dict.fromkeys([ADMIN, *(asker.user for asker in askers())], PASSWORD)


@attrs.frozen
class Told:
    """What an answer says."""

    errors: dict[str, str]
    """Place -> the error there, of all that are not NONE. Names of the world stand as THERE, so that answers compare."""
    text: str
    """All of it, the same way."""

    @property
    def refusals(self) -> set[str]:
        """But for the configuration of a topic that was made, which is hidden."""
        found = {name for place, name in self.errors.items() if not place.endswith("topic_config_error_code")}
        return found & REFUSALS


@attrs.define(eq=False)
class World:
    """A broker that has what the cases are about. Owner: the test."""

    address: tuple[str, int]
    topic_ids: dict[str, bytes] = attrs.field(factory=dict)

    @classmethod
    def made(cls, address: tuple[str, int]) -> World:
        """Make topics, ACLs, a group and a transactional id, and wait until the broker knows them."""
        world = cls(address)
        everybody = askers()
        with world.as_user(ADMIN) as admin:
            names = [THERE, *(each.own for each in everybody if not each.case.is_about_new)]
            answer = admin.call(create_topics(*map(new_topic, names)), 7)
            assert not any(topic.error_code for topic in answer.topics), answer
            created = acls_of(everybody)
            results = admin.call(created, 3).results
            assert not any(result.error_code for result in results), results
            world.topic_ids = _until(lambda: _topic_ids(admin, names))
            _until(lambda: _acl_count(admin) >= len(created.creations))
            for case in STARTING:
                body, version = case.request(world.names(THERE))
                _until(lambda body=body, version=version: _served(admin.call(body, version)))
        return world

    @contextmanager
    def as_user(self, user: str) -> Iterator[KafkaWire]:
        """A connection that has logged in, for the time of the block."""
        with KafkaWire.connect(self.address) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answer = client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 2)
            assert not answer.error_code, answer
            yield client

    def names(self, of: str) -> Names:
        return Names(of, self.topic_ids.get(of, UNKNOWN_ID))

    def asked(self, asker: Asker, of: str) -> Told:
        """What a user is told of things with this name."""
        names = self.names(of)
        with self.as_user(asker.user) as client:
            return _until(lambda: self._told(client, asker, names))

    def _told(self, client: KafkaWire, asker: Asker, names: Names) -> Told | None:
        """None: what is asked for is not done yet."""
        if asker.hidden is not None:
            self._make(asker.hidden, names)
        for body, version in asker.case.prepared(names):
            client.call(body, version)
        body, version = asker.case.request(names)
        answer = told(client.call(body, version), [names, self.names(AWAY)])
        is_early = any(ErrorCode[name] in LATER for name in answer.errors.values())
        is_unseen = asker.hidden is not None and asker.more and asker.hidden.shows not in answer.text
        return None if is_early or (is_unseen and asker.hidden.made) else answer

    def _make(self, hidden: Hidden, names: Names) -> None:
        """What an administrator does, a step with the producer that the one before was answered with."""
        producer: dict[str, int] = {}
        with self.as_user(ADMIN) as admin:
            for key, version, fields in hidden.made:
                body = ask(APIS[key].name, **{**filled(fields, names), **producer})
                answer: Any = _until(lambda body=body, version=version: _served(admin.call(body, version)))
                if key is ApiKey.INIT_PRODUCER_ID:
                    producer = {f"v3_and_below_{name}": getattr(answer, name) for name in ("producer_id", "producer_epoch")}


def _served(answer: Any) -> Any:
    return None if told(answer, []).errors else answer


def answered(world: World, asking: Iterable[Asker]) -> dict[str, Told]:
    """What each is told, by who asks and what about."""
    return {question(asker, of): world.asked(asker, of) for asker in asking for of in asker.asks_about}


def question(asker: Asker, of: str) -> str:
    return f"{asker.label}, about {'its own' if of == asker.own else of}"


def _until(ask: Callable[[], T | None]) -> T:
    """What is answered in the end: asked again while it is nothing."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := ask()):
        assert time.monotonic() < deadline, f"nothing within {DEADLINE_S:g} s"
    return found


def _topic_ids(admin: KafkaWire, names: Sequence[str]) -> dict[str, bytes] | None:
    everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    found = {topic.name: topic.topic_id for topic in admin.call(everything, 12).topics if topic.partitions}
    return found if found.keys() >= set(names) else None


def _acl_count(admin: KafkaWire) -> int:
    any_one = {"resource_type_filter": ResourceType.ANY, "resource_name_filter": None, "pattern_type_filter": PatternType.ANY}
    everything = ask("DescribeAcls", **{**FILTER, **any_one})
    return sum(len(resource.acls) for resource in admin.call(everything, 3).resources)


def told(answer: Any, known: Iterable[Names]) -> Told:
    names = [(each.of, str(each.topic_id)) for each in known]

    def alike(text: str) -> str:
        text = re.sub(r"<memory at \w+>", "BYTES", text)
        for name, topic_id in names:
            text = re.sub(rf"\b{name}\b", THERE, text).replace(topic_id, "ID")
        return text

    errors = {alike(place): ErrorCode(code).name for place, code in _errors(answer) if code}
    return Told(errors, alike(str(answer)))


def _errors(value: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """(place, code) of everything in an answer that can have an error."""
    for attribute in attrs.fields(type(value)):
        found = getattr(value, attribute.name)
        here = f"{place}.{attribute.name}" if place else attribute.name
        if attribute.name.endswith("error_code"):
            yield here, found
        for number, each in enumerate(found if isinstance(found, list) else [found]):
            if attrs.has(type(each)):
                yield from _errors(each, f"{here}[{number}]" if isinstance(found, list) else here)


def _first(key: ApiKey, number: int = 0) -> Case:
    return [case for case in CASES if case.key is key][number]


STARTING: Final = (
    *(_first(ApiKey.FIND_COORDINATOR, number) for number in (0, 1)),  # makes Kafka's internal topics
    _first(ApiKey.OFFSET_COMMIT),
    _first(ApiKey.INIT_PRODUCER_ID),
)
"""After these there are a group and a transactional id, and coordinators serve."""


FILE: Final = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "rights.json"


@attrs.frozen
class Deviation:
    ours: dict[str, str]
    why: str


_UNKNOWN_ID: Final = Deviation(
    {"responses[0].partitions[0].error_code": "UNKNOWN_TOPIC_ID"}, "Kafka answers UNKNOWN_SERVER_ERROR for the whole request"
)
DEVIATIONS: Final = {f"{api} v1 without READ TOPIC, about nobody": _UNKNOWN_ID for api in ("ShareFetch", "ShareAcknowledge")}


def comparable(answers: Mapping[str, Told]) -> dict[str, dict[str, str]]:
    """The errors of all that is refused or hidden, by question."""
    asked = {question(asker, of) for asker in askers() if asker.missing or asker.hidden for of in asker.asks_about}
    return {name: answer.errors for name, answer in answers.items() if name in asked}


def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text())
    return found


def record(answers: Mapping[str, dict[str, str]]) -> None:
    FILE.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
