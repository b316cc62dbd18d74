"""What is served, declared and written on the compatibility page, against the definitions in the jars of Kafka's clients.

`TRIOLOG_WRITE_TABLE=1` writes the page's table of all APIs, with the reasons that it has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

import attrs
import pytest
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.schema import codec
from triolog.server.fake.kafka.kafka_versions import maxima_of

from tests.support.counts import seeds
from tests.support.kafka_jars import KafkaUnavailableError, clients_jar, unavailable
from tests.support.kafka_oracles import KafkaJar, declared_here
from tests.support.kafka_values import MESSAGES, random_value

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kafka-compatibility.md"
BEGIN: Final = "<!-- APIs: made by TRIOLOG_WRITE_TABLE=1 make test ARGS=tests/kafka/test_message_definitions.py -->"
END: Final = "<!-- end of APIs -->"
REFERENCE: Final = "4.3.1"
NEWEST: Final = "4.4.0"
NOTHING: Final = "-"

Apis = Mapping[int, tuple[str, range]]
"""Name and versions by key."""


@attrs.frozen
class AllApis:
    """The table."""

    reference: Apis
    newest: Apis
    reasons: Mapping[int, str]
    """Why something else is served than the newest release has."""

    def lines(self) -> list[str]:
        rows = [["key", "API", "here", f"Kafka {REFERENCE}", f"Kafka {NEWEST}", "why it differs"]]
        for key, (name, _) in self._all():
            why = self.reasons.get(key, "") if self._differs(key) else ""
            rows.append([str(key), name, served(key), *self._versions(key), why])
        made = ["| " + " | ".join(row).strip() + " |" for row in rows]
        return [made[0], "|---:|---|---|---|---|---|", *made[1:]]

    def without_reason(self) -> list[str]:
        """Names of APIs that differ from the newest release, and it is not said why."""
        return [name for key, (name, _) in self._all() if self._differs(key) and not self.reasons.get(key)]

    def _all(self) -> list[tuple[int, tuple[str, range]]]:
        return sorted({**self.reference, **self.newest}.items())

    def _differs(self, key: int) -> bool:
        return served(key) != self._versions(key)[-1]

    def _versions(self, key: int) -> list[str]:
        return [_text(apis[key][1]) if key in apis else NOTHING for apis in (self.reference, self.newest)]


def served(key: int) -> str:
    """The versions that are advertised here."""
    return _text(range(APIS[key].lowest, APIS[key].highest + 1)) if key in APIS else NOTHING


def reasons_in(page: str) -> dict[int, str]:
    """What the page says of differences, by key."""
    rows = [line.strip("|").split("|") for line in page.split(BEGIN)[1].split(END)[0].splitlines()]
    return {int(row[0]): row[-1].strip() for row in rows if row[0].strip().isdecimal()}


def replaced(page: str, table: AllApis) -> str:
    """The page with another table."""
    before, rest = page.split(BEGIN)
    return "\n".join([before + BEGIN, *table.lines(), END + rest.split(END)[1]])


def _text(versions: range) -> str:
    return f"{versions[0]}-{versions[-1]}"


NOT_READ_BY_KAFKA: Final = frozenset({("ListOffsets", 0)})
"""Kafka 4 no longer has it; clients of today still send it. `protocol/kafka/test_oracles.py` compares it with kafka-python."""


def definitions(version: str) -> KafkaJar:
    try:
        return KafkaJar(clients_jar(version))
    except KafkaUnavailableError as exc:
        unavailable(str(exc))


@pytest.fixture(scope="module")
def newest() -> KafkaJar:
    return definitions(NEWEST)


def test_every_message_is_declared_as_in_kafkas_own_file(newest: KafkaJar) -> None:
    unknown = {(message.api.name, message.version) for message in MESSAGES if not newest.knows(message)}
    assert unknown == NOT_READ_BY_KAFKA
    for message in filter(newest.knows, MESSAGES):
        assert declared_here(message.cls, message.version) == newest.declared(message), message


def test_every_message_is_written_and_read_by_kafkas_own_file(newest: KafkaJar) -> None:
    for message, seed in product(filter(newest.knows, MESSAGES), seeds(5)):
        value = random_value(message.cls, message.version, Random(seed))
        theirs = newest.encode(message, value)
        assert b"".join(codec.write(value, message.version, flexible=message.flexible)) == theirs, message
        read = codec.read(message.cls, message.version, memoryview(theirs), flexible=message.flexible)
        assert read == (value, len(theirs)), message


def test_the_page_has_every_api_in_the_versions_of_both_releases(newest: KafkaJar) -> None:
    """And a reason where a version is served that Kafka has not, or the other way round."""
    page = PAGE.read_text(encoding="utf-8")
    table = AllApis(of_brokers(definitions(REFERENCE)), of_brokers(newest), reasons_in(page))
    if os.environ.get("TRIOLOG_WRITE_TABLE"):
        PAGE.write_text(page := replaced(page, table), encoding="utf-8")
    assert page == replaced(page, table)
    assert table.without_reason() == []


def of_brokers(jar: KafkaJar) -> dict[int, tuple[str, range]]:
    return {key: (name, jar.versions(name)) for key, name in jar.of_brokers().items()}


@pytest.mark.parametrize(("version", "release"), [(REFERENCE, "4.3"), (NEWEST, "4.4")])
def test_a_release_is_emulated_with_the_versions_that_it_has(version: str, release: str) -> None:
    jar = definitions(version)
    highest = {key: jar.versions(name)[-1] for key, name in jar.of_brokers().items() if key in APIS}
    assert {key: maxima_of(release)[key] for key in highest} == highest
